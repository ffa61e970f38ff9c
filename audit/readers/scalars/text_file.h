// A file of points that is text: what its formats have in common.
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
  // One line that is ended, or the last one.
  virtual void Take(const TextLine& line, PointSink* sink) = 0;
  // Nothing more is there now, or ever.
  virtual void Pause(PointSink* /*sink*/) {}
  virtual void Finish(PointSink* /*sink*/) {}
  // Whether a line with zero bytes in it is damage; false: a log has such things.
  virtual bool ZerosAreDamage() const { return true; }
  // Whether compressed bytes that merely stop are: of formats whose last record may be unfinished
  // they are none (CONTRACT.md).
  virtual bool CutIsDamage() const { return false; }
  InputReport& report() { return *report_; }

 private:
  void ReportStream();
  // A line without the zeros at its ends: room that was set aside and never written, as after a
  // crash of the host. One with zeros within is passed over and counted.
  void TakeLine(TextLine line, PointSink* sink);
  void ReportZeros();

  InputReport* report_;
  TextLines lines_;
  bool stream_reported_ = false;
  uint64_t zero_lines_ = 0, first_zero_line_ = 0;  // with zeros within; where the first begins
  std::optional<uint64_t> zeros_at_;               // at which the unwritten end begins
};

// nullptr: the file cannot be opened, and its report says why.
std::unique_ptr<ByteStream> OpenText(InputReport* report);

// A name as it may stand in evidence: at most 200 bytes, no control characters, UTF-8 (what is none
// becomes '?').
std::string PlainName(std::string_view name);

}  // namespace plumbline::audit
