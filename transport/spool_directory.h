// The directories of spools and their owners.
//
// DIR/trainer-r00003-0123456789abcdef/ is the spool of one stream: a file `lock` and its segments.
// The process that writes it holds a record lock (fcntl) on `lock`, which the kernel releases when
// that process dies and which forked children do not inherit. A process that gets the lock may
// deliver the batches and delete them. So a new directory gets its name after it is locked.
// Directories of spools are 0700 and their files 0600, for any umask of the trainer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::transport {

// Locks one directory while this object exists. Thread-compatible. Several locks of one process
// exclude each other, too.
class SpoolLock {
 public:
  // Returns FailedPrecondition if another process, or this one, writes or delivers the spool. Other
  // errors come from the system.
  static absl::StatusOr<std::unique_ptr<SpoolLock>> Take(const std::string& directory);
  // Does the same, after creating the directory and its parents if they are missing.
  static absl::StatusOr<std::unique_ptr<SpoolLock>> Make(const std::string& directory);
  ~SpoolLock();
  SpoolLock(const SpoolLock&) = delete;
  SpoolLock& operator=(const SpoolLock&) = delete;

  // Deletes the lock file and the directory, which must hold nothing else. The directory is locked
  // until then.
  void RemoveDirectory();

 private:
  SpoolLock(std::string directory, int fd) : directory_(std::move(directory)), fd_(fd) {}
  static absl::StatusOr<std::unique_ptr<SpoolLock>> TakeAs(const std::string& directory,
                                                           const std::string& made_as);

  const std::string directory_;
  const int fd_;
};

// Returns "DIR/trainer-r00003-0123456789abcdef".
std::string SpoolPath(const std::string& dir, v1::Role role, uint32_t rank, uint64_t stream_id);

struct FoundSpool {
  std::string path;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  uint64_t stream_id = 0;
};
// Returns the spools in `dir`, also those of live processes, sorted by path. Empty if `dir` is
// unreadable or missing.
std::vector<FoundSpool> FindSpools(const std::string& dir);

// Returns the segments of one spool, sorted by their first sequence.
struct FoundSegment {
  std::string path;
  uint64_t first = 0;
  uint64_t bytes = 0;
};
std::vector<FoundSegment> FindSegments(const std::string& directory);
std::string SegmentPath(const std::string& directory, uint64_t first);
// Creates an empty file of mode 0600 if there is none. Call before the file is opened for
// appending.
absl::Status CreatePrivate(const std::string& path);

}  // namespace plumbline::transport
