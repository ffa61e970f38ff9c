// The common base of text formats with points.
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
  // Takes one complete line, or the last line of the file.
  virtual void Take(const TextLine& line, PointSink* sink) = 0;
  // Called if there are no more lines now, or if the file has ended.
  virtual void Pause(PointSink* /*sink*/) {}
  virtual void Finish(PointSink* /*sink*/) {}
  // Returns true if a line with zero bytes is damage; false for logs, where they occur.
  virtual bool ZerosAreDamage() const { return true; }
  // Returns true if compressed data that ends early is damage. Returns false if the format's last
  // record may be unfinished (CONTRACT.md).
  virtual bool CutIsDamage() const { return false; }
  InputReport& report() { return *report_; }

 private:
  void ReportStream();
  // Removes zeros at both ends of a line. They are space that was allocated but never written, as
  // after a crash of the host. Skips and counts a line with zeros inside.
  void TakeLine(TextLine line, PointSink* sink);
  void ReportZeros();

  InputReport* report_;
  TextLines lines_;
  bool stream_reported_ = false;
  // Number of lines with zeros inside; offset of the first one.
  uint64_t zero_lines_ = 0, first_zero_line_ = 0;
  std::optional<uint64_t> zeros_at_;  // offset of the unwritten end
};

// If the file cannot be opened, adds the reason to its report and returns nullptr.
std::unique_ptr<ByteStream> OpenText(InputReport* report);

// Returns a name in the form that evidence allows: at most 200 bytes, no control characters, valid
// UTF-8. Other bytes become '?'.
std::string PlainName(std::string_view name);

}  // namespace plumbline::audit
