#include "base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

absl::Status CheckMode(const std::string& path, const struct stat& info, size_t max_bytes) {
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": expected a regular file"));
  }
  // Root may give a group access to a secret. Root also reads such a file: `plumbd --check-config`
  // checks the files that the unit will read.
  const bool handed_over = info.st_uid == 0 && (geteuid() != 0 || info.st_gid != 0);
  const mode_t forbidden = handed_over ? 0027 : 0077;
  if ((info.st_mode & forbidden) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": contains a secret, and its mode ", mode,
                     " allows access by others; expected 0600 (chmod 600 ", path, ")"));
  }
  if (static_cast<size_t>(info.st_size) > max_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", info.st_size, " bytes, expected at most ", max_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path, size_t size) {
  std::string text(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t n = read(fd, text.data() + have, size - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::PermissionDeniedError(absl::StrCat(path, ": ", std::strerror(errno)));
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t max_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string what = absl::StrCat(path, ": cannot be read: ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(what) : absl::PermissionDeniedError(what);
  }
  // Checks the mode of the open file: it cannot change in between.
  struct stat info {};
  absl::StatusOr<std::string> text = absl::PermissionDeniedError(path + ": cannot be examined");
  if (fstat(fd, &info) == 0) {
    const absl::Status usable = CheckMode(path, info, max_bytes);
    text = usable.ok() ? ReadAll(fd, path, static_cast<size_t>(info.st_size)) : usable;
  }
  close(fd);
  return text;
}

}  // namespace plumbline
