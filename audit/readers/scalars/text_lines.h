// Lines of a text file that may still grow, about a megabyte at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "audit/readers/input/byte_stream.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

struct TextLine {
  std::string_view text;  // without its end; valid until the next call
  uint64_t offset = 0;    // of its first byte, in the decompressed stream
  bool ended = true;      // false: the file ended before the line did
  bool too_long = false;  // skipped: `text` is empty
};

enum class LineEnds {
  kNewline,          // with a carriage return before it or not
  kNewlineOrReturn,  // a progress bar's carriage return ends a line, too
};

// Memory: a megabyte and twice the longest line that is kept. Not thread-safe.
class TextLines {
 public:
  TextLines(std::unique_ptr<ByteStream> stream, size_t most, LineEnds ends);

  // Reads on; false: nothing more is there now. What Next gave before is gone.
  bool Fill();
  // The lines of what was read that are ended.
  bool Next(TextLine* line);
  // The unfinished line at the end; false: there is none.
  bool Rest(TextLine* line);

  const ByteStream& stream() const { return *stream_; }

 private:
  static constexpr size_t kUnknown = SIZE_MAX;

  void MakeRoom();

  std::unique_ptr<ByteStream> stream_;
  size_t most_;
  LineEnds ends_;
  std::string buffer_;
  size_t begin_ = 0;           // of the next line
  size_t searched_ = 0;        // no line ends between begin_ and here
  size_t newline_ = kUnknown;  // the next from searched_ on; end_: none in what was read
  size_t end_ = 0;             // of what was read
  uint64_t buffer_at_ = 0;
  bool skipping_ = false;  // within a line that is too long
  uint64_t skipped_at_ = 0;
};

// A file of points that is text: what its formats have in common. Not thread-safe.
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
  InputReport& report() { return *report_; }

 private:
  void ReportStream();

  InputReport* report_;
  TextLines lines_;
  bool stream_reported_ = false;
};

// nullptr: the file cannot be opened, and its report says why.
std::unique_ptr<ByteStream> OpenText(InputReport* report);

// A name as it may stand in evidence: at most 200 bytes, no control characters, UTF-8 (what is none
// becomes '?').
std::string PlainName(std::string_view name);

}  // namespace plumbline::audit
