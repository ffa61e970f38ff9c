#include "audit/readers/input/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace plumbline::audit {
namespace {

absl::Status SystemError(int error) {
  return absl::UnavailableError(std::string("expected a readable file, found: ") +
                                std::strerror(error));
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK, because opening a pipe without a writer must not block.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError(errno);
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return SystemError(error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError("expected a regular file, found a pipe, device or directory");
  }
  return InputFile(fd, static_cast<uint64_t>(info.st_size));
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status InputFile::ReadAt(uint64_t offset, char* data, size_t size) const {
  while (size > 0) {
    const ssize_t got = pread(fd_, data, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(errno);
    if (got == 0)
      return absl::OutOfRangeError("expected " + std::to_string(size) +
                                   " more bytes, found the end of the file");
    data += got;
    size -= static_cast<size_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> InputFile::ReadSome(uint64_t offset, char* data, size_t size) const {
  while (true) {
    const ssize_t got = pread(fd_, data, size, static_cast<off_t>(offset));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) return SystemError(errno);
  }
}

absl::StatusOr<std::string> InputFile::Head(size_t size) const {
  std::string head(std::min<uint64_t>(size, size_), '\0');
  if (absl::Status status = ReadAt(0, head.data(), head.size()); !status.ok()) return status;
  return head;
}

std::string LastBytes(std::string_view path, size_t size) {
  absl::StatusOr<InputFile> file = InputFile::Open(std::string(path));
  if (!file.ok()) return "";
  std::string bytes(std::min<uint64_t>(size, file->size()), '\0');
  return file->ReadAt(file->size() - bytes.size(), bytes.data(), bytes.size()).ok() ? bytes : "";
}

std::string Quoted(std::string_view name) {
  constexpr size_t kMost = 80;
  std::string out = "\"";
  out += name.substr(0, kMost);
  return out + (name.size() > kMost ? "...\"" : "\"");
}

}  // namespace plumbline::audit
