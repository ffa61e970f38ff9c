// The common part of text formats with points.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "audit/readers/input/text_lines.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Not thread-safe.
class TextPointFile : public PointFile {
 public:
  TextPointFile(InputReport* report, std::unique_ptr<ByteStream> stream, size_t most_line,
                LineEnds ends);

  bool Read(PointSink* sink) final;
  uint64_t bytes_read() const final { return lines_.stream().file_bytes_read(); }
  void Close(PointSink* sink) final;

 protected:
  // Takes one complete line, or the last one.
  virtual void Take(const TextLine& line, PointSink* sink) = 0;
  // Called if there is nothing more now, or at all.
  virtual void Pause(PointSink* /*sink*/) {}
  virtual void Finish(PointSink* /*sink*/) {}
  // Returns true if a line with zero bytes is damage; false for logs, where they occur.
  virtual bool ZerosAreDamage() const { return true; }
  // Returns true if compressed bytes that end early are damage. They are not if the format's last
  // record may be unfinished (CONTRACT.md).
  virtual bool CutIsDamage() const { return false; }
  InputReport& report() { return *report_; }

 private:
  void ReportStream();
  // Removes zeros at a line's ends: space that was allocated but never written, as after a crash of
  // the host. Skips and counts a line with zeros within.
  void TakeLine(TextLine line, PointSink* sink);
  void ReportZeros();

  InputReport* report_;
  TextLines lines_;
  bool stream_reported_ = false;
  uint64_t zero_lines_ = 0, first_zero_line_ = 0;  // with zeros within; offset of the first
  std::optional<uint64_t> zeros_at_;               // offset of the unwritten end
};

// Returns nullptr if the file cannot be opened; its report states why.
std::unique_ptr<ByteStream> OpenText(InputReport* report);

// Returns a name as evidence may contain it: at most 200 bytes, no control characters, valid UTF-8
// (other bytes become '?').
std::string PlainName(std::string_view name);

}  // namespace plumbline::audit
