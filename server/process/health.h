// Checks whether evidence can be acknowledged, and whether the important threads progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace plumbline::server {

// Free and total bytes of the file system of `path`. SpaceOf returns false if the system does not
// report them.
struct DiskSpace {
  uint64_t free = 0, size = 0;
};
bool SpaceOf(const std::string& path, DiskSpace* out);

// Checks a few times a second, on a separate thread. Thread-safe.
class Health {
 public:
  struct Sources {
    std::string directory;  // for acknowledged evidence; empty: none
    // Returns Unavailable, with the reason, if the journal cannot take anything at present.
    std::function<absl::Status()> journal;
    // Return how long the judge and the journal's thread have been busy with their current work.
    std::function<std::chrono::nanoseconds()> judging, writing;
    // Called on the checking thread; `changed` at the start and if the result changes.
    std::function<void(const absl::Status&)> changed;
    std::function<void()> gets_on;  // every `period`, unless a thread is blocked
    std::chrono::nanoseconds period{0};
  };

  // If less space is free, a commit might not fit. It is refused, so that the disk does not fail in
  // the middle of it.
  static constexpr uint64_t kLeastFree = 16 << 20;
  // A longer commit blocks all senders.
  static constexpr std::chrono::seconds kLongestCommit{10};
  // If a thread is busy longer with one task, it will not recover, and a restart is needed.
  static constexpr std::chrono::seconds kLongestUnit{60};

  explicit Health(Sources sources);
  ~Health();

  // Returns OK, or the reason why nothing can be acknowledged.
  absl::Status Serving() const;

 private:
  absl::Status Look() const;
  bool Stands() const;
  void Loop();

  const Sources sources_;
  mutable Mutex mutex_;
  CondVar wake_;
  absl::Status serving_ PLUMB_GUARDED_BY(mutex_);
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server
