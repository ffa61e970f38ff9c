#include "base/files/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace plumbline {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t most_bytes) {
  const auto failed = [&](int error) {
    return absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot be read"));
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed(errno);
  std::string text;
  char piece[16384];
  ssize_t n = 0;
  while (text.size() <= most_bytes && (n = read(fd, piece, sizeof piece)) != 0) {
    if (n > 0) text.append(piece, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  const int error = errno;
  close(fd);
  if (n < 0) return failed(error);
  if (text.size() > most_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": byte ", most_bytes, ": expected the end of the file"));
  }
  return text;
}

}  // namespace plumbline
