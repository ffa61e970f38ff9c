// Copies files, computes their digests, and makes them durable together.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::server {

struct FileDigest {
  uint64_t bytes = 0;
  std::string sha256;  // hexadecimal digits

  bool operator==(const FileDigest&) const = default;
};

// An open file: stays readable after another process has removed or replaced its name.
class PinnedFile {
 public:
  // Returns NotFound if there is no file of this name.
  static absl::StatusOr<PinnedFile> Open(const std::string& path);
  // Opens FOLDER/NAME, where NAME may contain slashes. The folder may belong to a service that is
  // not trusted, while the caller is root: returns PermissionDenied if a part of NAME is a symbolic
  // link, or if the file has another owner than the folder.
  static absl::StatusOr<PinnedFile> OpenBelow(const std::string& folder, const std::string& name);
  PinnedFile(PinnedFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  PinnedFile& operator=(PinnedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~PinnedFile();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  uint64_t size() const;  // at present

 private:
  PinnedFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  static absl::StatusOr<PinnedFile> OfRegular(std::string path, int fd, const uid_t* owner);

  std::string path_;
  int fd_ = -1;
};

// Returns the bytes of a small file.
absl::StatusOr<std::string> BytesOf(const PinnedFile& file);

// Copies from the beginning to the present end into the new file `to`, mode 0600; durable after
// SyncAll. Returns the digest of the bytes that were read.
absl::StatusOr<FileDigest> CopyFile(const PinnedFile& from, const std::string& to);

// Returns the digest of the file `path`. A large synced file is read from the disk, not from the
// page cache. Returns NotFound if there is no such file.
absl::StatusOr<FileDigest> DigestOf(const std::string& path);

// Makes all of the file system that holds `directory` durable: one call instead of one for each of
// thousands of small files.
absl::Status SyncAll(const std::string& directory);

}  // namespace plumbline::server
