// A server's data directory: locks it for one server, and names its files.
//
//  DATA/lock         held while a plumbd runs; contains its process id
//  DATA/journal/     segments (entry.h); the file `id` identifies the journal
//  DATA/store.sqlite derived from it (server/store): may be deleted
//  DATA/checkpoint/  (checkpoint_file.h)
//  DATA/capsules/    inputs of findings (server/capsules/capsule_files.h)
//  DATA/alerts.sqlite alerts and their deliveries (server/alerts)
//  DATA/gaps.plg     what the journal no longer holds (gap_table.h)
//
//  DATA/restore.unfinished/  a restore that is not complete (server/backup): plumbd does not start
//
// Only the owner has access: plumbd creates files under umask 077, and Open closes files that are
// open to others.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace plumbline::server {

inline constexpr char kUnfinishedRestore[] = "restore.unfinished";

// Returns true if plumbd makes files of this name in a data directory.
bool IsDataName(const std::string& name);

// Only one process at a time holds it; the kernel releases it when the process ends.
class DataDirectoryLock {
 public:
  // Locks an existing directory. Returns FailedPrecondition if another process holds the lock.
  static absl::StatusOr<std::unique_ptr<DataDirectoryLock>> Take(const std::string& path);
  ~DataDirectoryLock();
  DataDirectoryLock(const DataDirectoryLock&) = delete;
  DataDirectoryLock& operator=(const DataDirectoryLock&) = delete;

 private:
  explicit DataDirectoryLock(int fd) : fd_(fd) {}
  const int fd_;
};

class DataDirectory {
 public:
  // Creates missing folders. Returns InvalidArgument if the path cannot be a directory,
  // FailedPrecondition if another process holds it or a restore into it was interrupted.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string journal() const { return path_ + "/journal"; }
  std::string checkpoint() const { return path_ + "/checkpoint"; }
  std::string capsules() const { return path_ + "/capsules"; }
  std::string store() const { return path_ + "/store.sqlite"; }
  // A random id that is created with the journal and deleted with it.
  const std::string& journal_id() const { return journal_id_; }
  std::string alerts() const { return path_ + "/alerts.sqlite"; }
  std::string gaps() const { return path_ + "/gaps.plg"; }

 private:
  DataDirectory(std::string path, std::unique_ptr<DataDirectoryLock> lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const std::unique_ptr<DataDirectoryLock> lock_;
  std::string journal_id_;
};

}  // namespace plumbline::server
