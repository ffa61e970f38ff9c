// Since when a thread is at what it does: so that others see one that stands.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace plumbline {

// Begin and End by one thread, For by any.
class Busy {
 public:
  void Begin() { since_ = Now(); }
  void End() { since_ = 0; }
  // 0: it waits for work.
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
