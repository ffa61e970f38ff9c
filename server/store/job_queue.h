// The bounded queue between the judging thread and the store's writer. When it is full the judge
// waits: nothing is dropped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "server/store/store_writer.h"

namespace plumbline::server {

// Thread-safe.
class JobQueue {
 public:
  explicit JobQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Waits while more than the limit is queued. Returns how long that was.
  std::chrono::nanoseconds Push(StoreJob job, size_t bytes) {
    std::unique_lock lock(mutex_);
    const auto start = std::chrono::steady_clock::now();
    const bool full = bytes_ > max_bytes_;
    room_.wait(lock, [this] { return bytes_ <= max_bytes_ || closed_; });
    const auto end = full ? std::chrono::steady_clock::now() : start;
    bytes_ += bytes;
    jobs_.emplace_back(std::move(job), bytes);
    work_.notify_one();
    return end - start;
  }

  // Waits for jobs; all of those queued, up to `max_bytes` and at least one. Empty: closed and
  // done.
  std::vector<StoreJob> Take(size_t max_bytes) {
    std::unique_lock lock(mutex_);
    work_.wait(lock, [this] { return !jobs_.empty() || closed_; });
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
    std::lock_guard lock(mutex_);
    bytes_ -= taken_bytes_;
    taken_bytes_ = 0;
    room_.notify_all();
  }

  // Nobody waits any more; what is queued is still taken.
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    work_.notify_all();
    room_.notify_all();
  }

  // True when closed meanwhile.
  bool WaitClosed(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return work_.wait_for(lock, time, [this] { return closed_; });
  }

 private:
  const size_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable work_, room_;
  std::deque<std::pair<StoreJob, size_t>> jobs_;
  size_t bytes_ = 0;
  size_t taken_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace plumbline::server
