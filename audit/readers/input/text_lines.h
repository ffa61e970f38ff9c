// Reads lines of a text file that may still grow, piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "audit/readers/input/byte_stream.h"

namespace plumbline::audit {

struct TextLine {
  std::string_view text;  // the line without its end; valid until the next call
  uint64_t offset = 0;    // offset of its first byte in the decompressed stream
  bool ended = true;      // false if the file ended before the line did
  bool too_long = false;  // the line was skipped, and `text` is empty
};

enum class LineEnds {
  kNewline,          // a newline, with or without a preceding carriage return
  kNewlineOrReturn,  // a carriage return, as of a progress bar, also ends a line
};

// Memory: `read` bytes and twice the longest line that is kept. Not thread-safe.
class TextLines {
 public:
  static constexpr size_t kRead = 1 << 20;

  TextLines(std::unique_ptr<ByteStream> stream, size_t most, LineEnds ends, size_t read = kRead);

  // Reads more. Returns false if there is nothing more now. Invalidates lines of Next.
  bool Fill();
  // Returns the next complete line of what was read.
  bool Next(TextLine* line);
  // Returns the unfinished line at the end. Returns false if there is none.
  bool Rest(TextLine* line);

  const ByteStream& stream() const { return *stream_; }

 private:
  static constexpr size_t kUnknown = SIZE_MAX;

  void MakeRoom();

  std::unique_ptr<ByteStream> stream_;
  size_t most_;
  LineEnds ends_;
  size_t read_;
  std::string buffer_;
  size_t begin_ = 0;     // begin of the next line in the buffer
  size_t searched_ = 0;  // no line ends between begin_ and here
  // The next newline from searched_ on; end_ if the bytes read have none.
  size_t newline_ = kUnknown;
  size_t end_ = 0;  // end of the bytes that were read
  uint64_t buffer_at_ = 0;
  bool skipping_ = false;  // true within a line that is too long
  uint64_t skipped_at_ = 0;
};

}  // namespace plumbline::audit
