// Measures how long a thread has been busy with its current task. Used to detect stuck threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace plumbline {

// One thread calls Begin and End; For is thread-safe.
class TaskTimer {
 public:
  void Begin() { since_ = Now(); }
  void End() { since_ = 0; }
  // Returns the time since Begin, or 0 if the thread waits for work.
  std::chrono::nanoseconds For() const {
    const int64_t since = since_;
    return std::chrono::nanoseconds(since == 0 ? 0 : Now() - since);
  }

 private:
  static int64_t Now() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  std::atomic<int64_t> since_{0};
};

}  // namespace plumbline
