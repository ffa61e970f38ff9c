// Whether what comes can be acknowledged, and whether the threads that matter get on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace plumbline::server {

// Free and all bytes of the file system of `path`; false: the system does not say.
struct DiskSpace {
  uint64_t free = 0, size = 0;
};
bool SpaceOf(const std::string& path, DiskSpace* out);

// Looks a few times a second, on a thread of its own. Thread-safe.
class Health {
 public:
  struct Sources {
    std::string directory;  // where acknowledged evidence goes; empty: nowhere
    // Unavailable: the journal cannot take anything now, and why.
    std::function<absl::Status()> journal;
    // How long the judge and the journal's thread are at what they do.
    std::function<std::chrono::nanoseconds()> judging, writing;
    // What follows is called on the thread, `changed` when the answer does and at the start.
    std::function<void(const absl::Status&)> changed;
    std::function<void()> gets_on;  // every `period`, unless a thread stands
    std::chrono::nanoseconds period{0};
  };

  // Below it a commit might not fit: it is refused before the disk does so half-way.
  static constexpr uint64_t kLeastFree = 16 << 20;
  // A commit that takes so long holds up everybody.
  static constexpr std::chrono::seconds kLongestCommit{10};
  // A thread that is at one thing for so long does not come back: a restart will.
  static constexpr std::chrono::seconds kLongestUnit{60};

  explicit Health(Sources sources);
  ~Health();

  // OK, or why nothing can be acknowledged.
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
