// Where a backup is written: a folder beside it, which gets its name at the end.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backup/manifest.h"

namespace plumbline::server {

// DIR.unfinished, locked while a backup is written there. Removed with the object unless Finish has
// returned OK; what a process leaves there that is killed, the next one removes.
class BackupTarget {
 public:
  // FailedPrecondition: `directory` is neither free nor an older backup of the journal `id`, lies
  // in `data`, or another process writes a backup there.
  static absl::StatusOr<BackupTarget> Open(const std::string& directory, const std::string& data,
                                           const std::string& id);
  BackupTarget(BackupTarget&& other) noexcept
      : directory_(std::move(other.directory_)),
        path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)) {}
  ~BackupTarget();

  const std::string& path() const { return path_; }
  // Writes the manifest, syncs all, and renames. FailedPrecondition: an older backup that stands
  // there knows more of the journal.
  absl::Status Finish(const Manifest& manifest);

 private:
  BackupTarget(std::string directory, std::string path, int fd)
      : directory_(std::move(directory)), path_(std::move(path)), fd_(fd) {}
  absl::Status Exchange();

  std::string directory_, path_;
  int fd_;  // of path_, locked; -1: done
};

// "/a/b/" is "/a/b".
std::string WithoutSlash(std::string path);

// ResourceExhausted: the disk of `folder` has not `bytes` free, and what a journal on it needs.
absl::Status CheckFree(const std::string& folder, uint64_t bytes);

}  // namespace plumbline::server
