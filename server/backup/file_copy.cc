#include "server/backup/file_copy.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/sha256.h"

namespace plumbline::server {
namespace {

constexpr size_t kPiece = 1u << 20;
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

absl::Status FileFailed(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

// Uses OpenSSL, which uses the processor's instructions for SHA-256.
class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void Add(std::string_view bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
    bytes_ += bytes.size();
  }
  FileDigest Finish() {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), out, &size);
    return {bytes_, HexText({reinterpret_cast<const char*>(out), size})};
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
  uint64_t bytes_ = 0;
};

absl::StatusOr<FileDigest> ReadAll(const PinnedFile& file,
                                   const std::function<absl::Status(std::string_view)>& take) {
  std::vector<char> buffer(kPiece);
  Digest digest;
  for (off_t at = 0;;) {
    const ssize_t n = pread(file.fd(), buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileFailed(file.path(), "cannot be read");
    if (n == 0) return digest.Finish();
    const std::string_view piece(buffer.data(), static_cast<size_t>(n));
    digest.Add(piece);
    if (auto s = take(piece); !s.ok()) return s;
    at += n;
  }
}

absl::Status WriteAll(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileFailed(path, "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

// Takes the descriptor. `owner`: the required owner of the file; null: any.
absl::StatusOr<PinnedFile> PinnedFile::OfRegular(std::string path, int fd, const uid_t* owner) {
  PinnedFile file(std::move(path), fd);
  struct stat info {};
  if (fstat(fd, &info) != 0) return FileFailed(file.path(), "cannot be examined");
  if (!S_ISREG(info.st_mode))
    return absl::DataLossError(
        absl::StrCat(file.path(), ": expected a regular file, found another kind"));
  if (owner != nullptr && info.st_uid != *owner)
    return absl::PermissionDeniedError(absl::StrCat(file.path(), ": expected a file of user ",
                                                    *owner, ", who owns the folder, found one of ",
                                                    info.st_uid));
  return file;
}

absl::StatusOr<PinnedFile> PinnedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), kReadFlags);
  if (fd < 0) return FileFailed(path, "cannot be opened");
  return OfRegular(path, fd, nullptr);
}

absl::StatusOr<PinnedFile> PinnedFile::OpenBelow(const std::string& folder,
                                                 const std::string& name) {
  int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileFailed(folder, "cannot be opened");
  struct stat info {};
  (void)fstat(fd, &info);
  std::string path = folder;
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::StrAppend(&path, "/", parts[i]);
    const int kind = i + 1 < parts.size() ? O_RDONLY | O_DIRECTORY | O_CLOEXEC : kReadFlags;
    const int next = openat(fd, parts[i].c_str(), kind | O_NOFOLLOW);
    const int error = errno;
    close(fd);
    if (next < 0 && (error == ELOOP || error == ENOTDIR))
      return absl::PermissionDeniedError(
          absl::StrCat(path,
                       ": expected a regular file below folders, found a symbolic link or "
                       "another kind"));
    errno = error;
    if (next < 0) return FileFailed(path, "cannot be opened");
    fd = next;
  }
  return OfRegular(std::move(path), fd, &info.st_uid);
}

PinnedFile::~PinnedFile() {
  if (fd_ >= 0) close(fd_);
}

uint64_t PinnedFile::size() const {
  struct stat info {};
  return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

absl::StatusOr<std::string> BytesOf(const PinnedFile& file) {
  std::string bytes;
  const auto read = ReadAll(file, [&](std::string_view piece) {
    bytes.append(piece);
    return absl::OkStatus();
  });
  if (!read.ok()) return read.status();
  return bytes;
}

absl::StatusOr<FileDigest> CopyFile(const PinnedFile& from, const std::string& to) {
  const int fd = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return FileFailed(to, "cannot be made");
  auto digest = ReadAll(from, [&](std::string_view bytes) { return WriteAll(fd, to, bytes); });
  if (close(fd) != 0 && digest.ok()) digest = FileFailed(to, "cannot be written");
  return digest;
}

absl::StatusOr<FileDigest> DigestOf(const std::string& path) {
  auto file = PinnedFile::Open(path);
  if (!file.ok()) return file.status();
  // Drops the file from the page cache. For small files this is left out: on a busy disk it would
  // take longer than the rest of the backup.
  if (file->size() > kPiece) (void)posix_fadvise(file->fd(), 0, 0, POSIX_FADV_DONTNEED);
  return ReadAll(*file, [](std::string_view) { return absl::OkStatus(); });
}

absl::Status SyncAll(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileFailed(directory, "cannot be opened");
  absl::Status status =
      syncfs(fd) == 0 ? absl::OkStatus() : FileFailed(directory, "cannot be synced");
  close(fd);
  return status;
}

}  // namespace plumbline::server
