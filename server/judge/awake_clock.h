// Counts only time in which this server could receive reports. A stopped process, a sleeping host,
// a disk that refuses writes and an overloaded queue all keep reports of the ranks from the judge.
// Timeouts that wait for such a report must not run out meanwhile.
#pragma once

#include <chrono>

namespace plumbline::server {

// Not thread-safe. Time is passed in, so that tests need not wait.
class AwakeClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // If two calls of Look are further apart, the process was stopped.
  static constexpr std::chrono::milliseconds kLongest{1000};

  // Updates the clock; called several times a second. `hears` is true if every report since the
  // last call has been processed.
  void Look(Time real, bool hears) {
    const auto passed = real - last_;
    if (last_ != Time() && (!hears || passed > kLongest)) lost_ += passed;
    last_ = real;
  }
  Time At(Time real) const { return real - lost_; }

 private:
  Time last_{};
  std::chrono::nanoseconds lost_{0};
};

}  // namespace plumbline::server
