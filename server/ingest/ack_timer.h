// Calls back once, a fixed delay after each request: the acknowledgements that wait for company.
// All delays are equal, so a queue is enough and ten thousand streams cost one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace plumbline::server {

// Thread-safe. The destructor drops what has not run.
class AckTimer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AckTimer(std::chrono::nanoseconds delay) : delay_(delay), thread_([this] { Loop(); }) {}
  ~AckTimer() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Schedule(std::function<void()> callback) {
    std::lock_guard lock(mutex_);
    queue_.emplace_back(Clock::now() + delay_, std::move(callback));
    if (queue_.size() == 1) changed_.notify_all();
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      if (queue_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const auto due = queue_.front().first;
      if (Clock::now() < due) {
        changed_.wait_until(lock, due);
        continue;
      }
      const auto callback = std::move(queue_.front().second);
      queue_.pop_front();
      lock.unlock();
      callback();
      lock.lock();
    }
  }

  const std::chrono::nanoseconds delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Clock::time_point, std::function<void()>>> queue_;
  bool stopped_ = false;
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace plumbline::server
