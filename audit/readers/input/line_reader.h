// Reads a file's lines one at a time, with their offsets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "audit/readers/input/byte_stream.h"

namespace plumbline::audit {

struct Line {
  std::string_view text;  // the line without its newline; valid until the next call
  uint64_t offset = 0;    // offset of its first byte in the decompressed stream
  uint64_t number = 0;    // line number, counted from 1
  bool ended = true;      // false if the file ended before a newline
  bool too_long = false;  // the line exceeds the limit: it is skipped, and `text` is empty
};

// Memory: twice the longest line of at most `most` bytes. Not thread-safe.
class LineReader {
 public:
  static constexpr size_t kMaxLine = 256u << 20;
  // Rewrites bytes in place before lines are searched in them: (data, size), in their order.
  using Rewrite = std::function<void(char*, size_t)>;

  explicit LineReader(std::unique_ptr<ByteStream> stream, size_t most = kMaxLine,
                      Rewrite rewrite = nullptr);

  // Reads the next line. Returns false at the end; then stream().problem() has the error, if any.
  bool Next(Line* line);
  const ByteStream& stream() const { return *stream_; }

 private:
  bool Fill();

  std::unique_ptr<ByteStream> stream_;
  size_t most_;
  Rewrite rewrite_;
  std::string buffer_;
  size_t begin_ = 0;  // begin of the next line in the buffer
  size_t end_ = 0;    // end of the bytes that were read
  uint64_t buffer_at_ = 0;
  uint64_t number_ = 0;
};

// Returns the beginning of a file, decompressed, at most `most` bytes. `head` has the file's first
// raw bytes. It is returned if the file cannot be opened again.
std::string FirstBytes(std::string_view path, std::string_view head, size_t most);

}  // namespace plumbline::audit
