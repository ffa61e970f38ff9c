// Reads lines of a text file that may still grow, piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "audit/readers/input/byte_stream.h"

namespace plumbline::audit {

struct TextLine {
  std::string_view text;  // without its end; valid until the next call
  uint64_t offset = 0;    // of its first byte, in the decompressed stream
  bool ended = true;      // false if the file ended before the line did
  bool too_long = false;  // skipped: `text` is empty
};

enum class LineEnds {
  kNewline,          // with or without a preceding carriage return
  kNewlineOrReturn,  // a progress bar's carriage return ends a line too
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
  size_t begin_ = 0;           // of the next line
  size_t searched_ = 0;        // no line ends between begin_ and here
  size_t newline_ = kUnknown;  // the next newline from searched_ on; end_: none in what was read
  size_t end_ = 0;             // of what was read
  uint64_t buffer_at_ = 0;
  bool skipping_ = false;  // within a line that is too long
  uint64_t skipped_at_ = 0;
};

}  // namespace plumbline::audit
