// Calls back once, a fixed delay after each request, for acknowledgements that are sent together.
// All delays are equal, so a queue suffices, and ten thousand streams need one thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe. The destructor drops callbacks that have not run.
class AckTimer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AckTimer(std::chrono::nanoseconds delay) : delay_(delay), thread_([this] { Loop(); }) {}
  ~AckTimer() {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

  void Schedule(std::function<void()> callback) {
    const MutexLock lock(mutex_);
    queue_.emplace_back(Clock::now() + delay_, std::move(callback));
    if (queue_.size() == 1) changed_.NotifyAll();
  }

 private:
  void Loop() {
    MutexLock lock(mutex_);
    while (!stopped_) {
      if (queue_.empty()) {
        changed_.Wait(lock);
        continue;
      }
      const auto due = queue_.front().first;
      if (Clock::now() < due) {
        changed_.WaitUntil(lock, due);
        continue;
      }
      const auto callback = std::move(queue_.front().second);
      queue_.pop_front();
      lock.Unlock();
      callback();
      lock.Lock();
    }
  }

  const std::chrono::nanoseconds delay_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<Clock::time_point, std::function<void()>>> queue_ PLUMB_GUARDED_BY(mutex_);
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last member: starts when all others exist
};

}  // namespace plumbline::server
