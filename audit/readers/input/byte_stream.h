// The bytes of a file from its beginning to its end, decompressed: gzip and zstd are recognised by
// content, whatever the file's name. UTF-16 is given out as UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// Memory is bounded whatever the file holds: a few 64 KiB buffers, and at most 128 MiB of window
// where a zstd frame asks for it. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Plain, gzip (one member after the other), zstd (one frame after the other), UTF-16 with a mark.
  static std::unique_ptr<ByteStream> Open(InputFile file);

  // Up to `size` bytes to `data`; how many. 0 at the end, whether clean or not: see `problem`.
  size_t Read(char* data, size_t size);

  // Bytes given out so far.
  uint64_t offset() const { return given_; }
  // Bytes of the file consumed so far, for progress.
  uint64_t file_bytes_read() const { return file_at_; }
  // Why the stream ended before its time, at a byte of the decompressed stream. No error when the
  // compressed data merely stops, as it does while it is written.
  const std::optional<Problem>& problem() const { return problem_; }

 protected:
  explicit ByteStream(InputFile file) : file_(std::move(file)) {}
  virtual size_t Produce(char* data, size_t size) = 0;
  // Up to `size` bytes of the file as it is.
  size_t ReadFile(char* data, size_t size);
  void Fail(std::string text, bool error);

 private:
  InputFile file_;
  uint64_t file_at_ = 0;
  uint64_t given_ = 0;
  std::optional<Problem> problem_;
};

// True when the first bytes are those of gzip, zstd or UTF-16: the text is not in the file as it
// is.
bool IsCompressed(std::string_view head);

}  // namespace plumbline::audit
