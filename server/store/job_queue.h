// The bounded queue between the judging thread and the store's writer. When it is full the judge
// waits: nothing is dropped.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/store/store_writer.h"

namespace plumbline::server {

// Thread-safe.
class JobQueue {
 public:
  explicit JobQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Waits while more than the limit is queued. Returns how long that was.
  std::chrono::nanoseconds Push(StoreJob job, size_t bytes) {
    MutexLock lock(mutex_);
    const auto start = std::chrono::steady_clock::now();
    const bool full = bytes_ > max_bytes_;
    room_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return bytes_ <= max_bytes_ || closed_; });
    const auto end = full ? std::chrono::steady_clock::now() : start;
    bytes_ += bytes;
    jobs_.emplace_back(std::move(job), bytes);
    work_.NotifyOne();
    return end - start;
  }

  // Waits for jobs; all of those queued, up to `max_bytes` and at least one. Empty: closed and
  // done.
  std::vector<StoreJob> Take(size_t max_bytes) {
    MutexLock lock(mutex_);
    work_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return !jobs_.empty() || closed_; });
    std::vector<StoreJob> taken;
    size_t bytes = 0;
    while (!jobs_.empty() && (taken.empty() || bytes + jobs_.front().second <= max_bytes)) {
      bytes += jobs_.front().second;
      taken.push_back(std::move(jobs_.front().first));
      jobs_.pop_front();
    }
    taken_bytes_ = bytes;
    return taken;
  }

  // What was taken last has been written.
  void Done() {
    const MutexLock lock(mutex_);
    bytes_ -= taken_bytes_;
    taken_bytes_ = 0;
    room_.NotifyAll();
  }

  // Nobody waits any more; what is queued is still taken.
  void Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    work_.NotifyAll();
    room_.NotifyAll();
  }

  // True when closed meanwhile.
  bool WaitClosed(std::chrono::milliseconds time) {
    MutexLock lock(mutex_);
    return work_.WaitFor(lock, time, [this]() PLUMB_REQUIRES(mutex_) { return closed_; });
  }

 private:
  const size_t max_bytes_;
  Mutex mutex_;
  CondVar work_, room_;
  std::deque<std::pair<StoreJob, size_t>> jobs_ PLUMB_GUARDED_BY(mutex_);
  size_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  size_t taken_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool closed_ PLUMB_GUARDED_BY(mutex_) = false;
};

}  // namespace plumbline::server
