// Reads the bytes of a file from its beginning to its end, decompressed. Recognises gzip and zstd
// by content, not by the file's name. Converts UTF-16 to UTF-8.
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

// Memory is bounded for every file: a few buffers of 64 KiB, and at most 128 MiB of window if a
// zstd frame needs it. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Opens plain files, gzip (all members), zstd (all frames), and UTF-16 with a byte order mark.
  static std::unique_ptr<ByteStream> Open(InputFile file);

  // Reads up to `size` bytes to `data`, and returns their number. Returns 0 at the end, and also
  // after an error: see `problem`.
  size_t Read(char* data, size_t size);

  // Returns the number of bytes returned so far.
  uint64_t offset() const { return given_; }
  // Returns the number of file bytes consumed so far, for progress.
  uint64_t file_bytes_read() const { return file_at_; }
  // If the stream ended early, returns the reason, with an offset in the decompressed stream. If
  // the compressed data is only incomplete, as it is while a program writes it, the problem is not
  // an error.
  const std::optional<Problem>& problem() const { return problem_; }

 protected:
  explicit ByteStream(InputFile file) : file_(std::move(file)) {}
  virtual size_t Produce(char* data, size_t size) = 0;
  // Reads up to `size` bytes of the file without decompression.
  size_t ReadFile(char* data, size_t size);
  void Fail(std::string text, bool error);

 private:
  InputFile file_;
  uint64_t file_at_ = 0;
  uint64_t given_ = 0;
  std::optional<Problem> problem_;
};

// Returns true if the first bytes are those of gzip, zstd or UTF-16.
bool IsCompressed(std::string_view head);

}  // namespace plumbline::audit
