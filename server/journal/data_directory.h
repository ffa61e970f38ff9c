// A server's data directory: one server at a time, and where what lies.
//
//   DATA/lock         held while a plumbd runs; says its process id
//   DATA/journal/     segments (entry.h), and in `id` which journal this is
//   DATA/store.sqlite what is derived from it (server/store): may be deleted
//   DATA/checkpoint/  (checkpoint_file.h)
//   DATA/capsules/    what findings were judged from (server/capsules/capsule_files.h)
//   DATA/alerts.sqlite what was told to whom (server/alerts)
//   DATA/gaps.plg     what the journal no longer holds (gap_table.h)
//
//   DATA/restore.unfinished/  a restore that is not complete (server/backup): plumbd does not start
//
// All of it is for its owner alone: plumbd creates files under umask 077, and Open closes what is
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

// One process at a time has it; the kernel releases it when the process ends.
class DataDirectoryLock {
 public:
  // Locks a directory that exists. FailedPrecondition: another process holds the lock.
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
  // Creates what is not there. InvalidArgument when the path cannot be a directory,
  // FailedPrecondition when another process holds it, or a restore into it was cut off.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string journal() const { return path_ + "/journal"; }
  std::string checkpoint() const { return path_ + "/checkpoint"; }
  std::string capsules() const { return path_ + "/capsules"; }
  std::string store() const { return path_ + "/store.sqlite"; }
  // Made by chance with the journal, and gone with it.
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
