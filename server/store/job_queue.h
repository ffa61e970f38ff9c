// The bounded queue between the judging threads and the store's writer. It drops nothing: if it is
// full, they wait. One run may queue at most three times the remaining space, so that a run which
// sends more than the disk can write waits before other runs have to wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/store/store_writer.h"

namespace plumbline::server {

// Thread-safe.
class JobQueue {
 public:
  explicit JobQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Adds a job. Waits while there is no space for `run`; a job without bytes never waits. Returns
  // the time that it waited.
  std::chrono::nanoseconds Push(StoreJob job, size_t bytes, uint32_t run = 0) {
    MutexLock lock(mutex_);
    const auto start = std::chrono::steady_clock::now();
    const auto may = [&]() PLUMB_REQUIRES(mutex_) { return bytes == 0 || closed_ || HasRoom(run); };
    const bool full = !may();
    room_.Wait(lock, may);
    const auto end = full ? std::chrono::steady_clock::now() : start;
    bytes_ += bytes;
    if (bytes > 0) of_run_[run] += bytes;
    jobs_.push_back({std::move(job), bytes, run});
    work_.NotifyOne();
    return end - start;
  }

  // Waits for jobs, and returns those queued, up to `max_bytes` and at least one. Empty if the
  // queue is closed and done.
  std::vector<StoreJob> Take(size_t max_bytes) {
    MutexLock lock(mutex_);
    work_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return !jobs_.empty() || closed_; });
    std::vector<StoreJob> taken;
    size_t bytes = 0;
    while (!jobs_.empty() && (taken.empty() || bytes + jobs_.front().bytes <= max_bytes)) {
      Queued& next = jobs_.front();
      bytes += next.bytes;
      if (next.bytes > 0) taken_.emplace_back(next.run, next.bytes);
      taken.push_back(std::move(next.job));
      jobs_.pop_front();
    }
    taken_bytes_ = bytes;
    return taken;
  }

  // Frees the space of the jobs taken last, which have been written.
  void Done() {
    const MutexLock lock(mutex_);
    bytes_ -= taken_bytes_;
    taken_bytes_ = 0;
    for (const auto& [run, bytes] : taken_) {
      const auto of = of_run_.find(run);
      of->second -= bytes;
      if (of->second == 0) of_run_.erase(of);
    }
    taken_.clear();
    room_.NotifyAll();
  }

  // Ends all waiting. Queued jobs can still be taken.
  void Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    work_.NotifyAll();
    room_.NotifyAll();
  }

  // Waits; returns true if the queue was closed meanwhile.
  bool WaitClosed(std::chrono::milliseconds time) {
    MutexLock lock(mutex_);
    return work_.WaitFor(lock, time, [this]() PLUMB_REQUIRES(mutex_) { return closed_; });
  }

 private:
  struct Queued {
    StoreJob job;
    size_t bytes = 0;
    uint32_t run = 0;
  };

  bool HasRoom(uint32_t run) const PLUMB_REQUIRES(mutex_) {
    if (bytes_ > max_bytes_) return false;
    const auto of = of_run_.find(run);
    return of == of_run_.end() || of->second / 3 <= max_bytes_ - bytes_;
  }

  const size_t max_bytes_;
  Mutex mutex_;
  CondVar work_, room_;
  std::deque<Queued> jobs_ PLUMB_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, size_t> of_run_ PLUMB_GUARDED_BY(mutex_);  // bytes, with those taken
  std::vector<std::pair<uint32_t, size_t>> taken_ PLUMB_GUARDED_BY(mutex_);
  size_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  size_t taken_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool closed_ PLUMB_GUARDED_BY(mutex_) = false;
};

}  // namespace plumbline::server
