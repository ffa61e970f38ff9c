// A file that is read by position. Uses pread instead of a mapping, so that a file that shrinks
// while it is read gives a short read, not a SIGBUS.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::audit {

class InputFile {
 public:
  // Opens a regular file. Refuses a pipe or a device, which could block or never end.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  uint64_t size() const { return size_; }  // size at the time of opening

  // Fills `size` bytes at `data`. If the file ends before that, returns OutOfRange.
  absl::Status ReadAt(uint64_t offset, char* data, size_t size) const;
  // Reads up to `size` bytes at `offset`, and returns their number; 0 at the end.
  absl::StatusOr<size_t> ReadSome(uint64_t offset, char* data, size_t size) const;
  // Returns the first bytes, at most `size`.
  absl::StatusOr<std::string> Head(size_t size) const;

 private:
  InputFile(int fd, uint64_t size) : fd_(fd), size_(size) {}
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Returns the last bytes of a file, at most `size`. If the file cannot be read, returns "".
std::string LastBytes(std::string_view path, size_t size);

// Returns a name from a file for use in a message: quoted, and truncated to 80 bytes.
std::string Quoted(std::string_view name);

}  // namespace plumbline::audit
