// Time in which this server was there to hear. A process that was stopped, a host that slept, a
// disk that refuses and a queue that is behind all keep words of the ranks from the judge: what
// waits for such a word must not run out meanwhile.
#pragma once

#include <chrono>

namespace plumbline::server {

// Not thread-safe. Time is passed in, so that tests need not wait.
class AwakeClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // More than this between two looks: the process was stopped.
  static constexpr std::chrono::milliseconds kLongest{1000};

  // A look at it, several a second. `hears`: whatever was said since the last one has been heard.
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
