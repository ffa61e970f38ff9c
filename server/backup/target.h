// The folder in which a backup is written: DIR.unfinished, which is renamed to DIR at the end.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backup/manifest.h"

namespace plumbline::server {

// DIR.unfinished, locked while a backup is written there. Removed with the object unless Finish has
// returned OK. If a process is killed, the next one removes its files there.
class BackupTarget {
 public:
  // Returns FailedPrecondition if `directory` is neither free nor an older backup of the journal
  // `id`, is inside `data`, or another process writes a backup there.
  static absl::StatusOr<BackupTarget> Open(const std::string& directory, const std::string& data,
                                           const std::string& id);
  BackupTarget(BackupTarget&& other) noexcept
      : directory_(std::move(other.directory_)),
        path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)) {}
  ~BackupTarget();

  const std::string& path() const { return path_; }
  // Writes the manifest, syncs all, and renames. Returns FailedPrecondition if the existing backup
  // holds later entries of the journal.
  absl::Status Finish(const Manifest& manifest);

 private:
  BackupTarget(std::string directory, std::string path, int fd)
      : directory_(std::move(directory)), path_(std::move(path)), fd_(fd) {}
  absl::Status Exchange();

  std::string directory_, path_;
  int fd_;  // of path_, locked; -1: done
};

// Removes trailing slashes: "/a/b/" becomes "/a/b".
std::string WithoutSlash(std::string path);

// Returns ResourceExhausted if the disk of `folder` has less free space than `bytes` plus
// Health::kLeastFree.
absl::Status CheckFree(const std::string& folder, uint64_t bytes);

}  // namespace plumbline::server
