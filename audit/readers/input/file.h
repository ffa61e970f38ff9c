// A file that is read by position. pread instead of a mapping: a file that shrinks while it is read
// gives a short read, not a SIGBUS.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::audit {

class InputFile {
 public:
  // Regular files only: a pipe or a device would block or never end.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  uint64_t size() const { return size_; }  // when it was opened

  // Fills `size` bytes at `data`; OutOfRange when the file ends before that.
  absl::Status ReadAt(uint64_t offset, char* data, size_t size) const;
  // As many bytes as there are at `offset`, at most `size`; 0 at the end.
  absl::StatusOr<size_t> ReadSome(uint64_t offset, char* data, size_t size) const;
  // As many bytes as there are, at most `size`.
  absl::StatusOr<std::string> Head(size_t size) const;

 private:
  InputFile(int fd, uint64_t size) : fd_(fd), size_(size) {}
  int fd_ = -1;
  uint64_t size_ = 0;
};

// The last bytes of a file, at most `size`; empty if it cannot be read.
std::string LastBytes(std::string_view path, size_t size);

// A name out of a file as it appears in a message: quoted, cut after 80 bytes.
std::string Quoted(std::string_view name);

}  // namespace plumbline::audit
