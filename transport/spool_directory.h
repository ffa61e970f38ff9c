// Where spools lie, and whose they are.
//
// DIR/trainer-r00003-0123456789abcdef/ is the spool of one stream: a file `lock` and its segments.
// The process that writes it holds a record lock (fcntl) on `lock`, which the kernel releases when
// that process dies and which forked children do not inherit. Whoever gets the lock may deliver
// what lies there and delete it: so a new directory gets its name when it is locked, not before.
// Directories of spools are 0700 and their files 0600, whatever the trainer's umask.
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

// One directory, locked while this lives. Thread-compatible; several of one process exclude each
// other too.
class SpoolLock {
 public:
  // FailedPrecondition: another process, or this one, writes or delivers it. Others from the
  // system.
  static absl::StatusOr<std::unique_ptr<SpoolLock>> Take(const std::string& directory);
  // The same of a directory that is made, with those above it, where there is none.
  static absl::StatusOr<std::unique_ptr<SpoolLock>> Make(const std::string& directory);
  ~SpoolLock();
  SpoolLock(const SpoolLock&) = delete;
  SpoolLock& operator=(const SpoolLock&) = delete;

  // Deletes the lock file and the directory, which must hold nothing else. Still locked until then.
  void RemoveDirectory();

 private:
  SpoolLock(std::string directory, int fd) : directory_(std::move(directory)), fd_(fd) {}
  static absl::StatusOr<std::unique_ptr<SpoolLock>> TakeAs(const std::string& directory,
                                                           const std::string& made_as);

  const std::string directory_;
  const int fd_;
};

// "DIR/trainer-r00003-0123456789abcdef".
std::string SpoolPath(const std::string& dir, v1::Role role, uint32_t rank, uint64_t stream_id);

struct FoundSpool {
  std::string path;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  uint64_t stream_id = 0;
};
// The spools in `dir`, sorted by path; live ones too. An unreadable or missing `dir` has none.
std::vector<FoundSpool> FindSpools(const std::string& dir);

// Segments of one spool by their first sequence, sorted.
struct FoundSegment {
  std::string path;
  uint64_t first = 0;
  uint64_t bytes = 0;
};
std::vector<FoundSegment> FindSegments(const std::string& directory);
std::string SegmentPath(const std::string& directory, uint64_t first);
// An empty file of mode 0600, where there is none; whoever appends to it finds it there.
absl::Status CreatePrivate(const std::string& path);

}  // namespace plumbline::transport
