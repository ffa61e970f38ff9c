// Limits log lines that outside input can cause: each kind has a burst, and then a rate per second.
// Lines left out are counted and reported.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe. Time is passed in, so that tests need not wait.
class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr double kBurst = 50;     // lines of a kind
  static constexpr double kPerSecond = 2;  // after that
  static constexpr size_t kMostKinds = 512;
  static constexpr std::chrono::seconds kDescribeEach{10};

  // Returns true if a line of this kind may be written. The kind is its format.
  bool Admit(std::string_view kind, Time now);

  // Returns lines that report the lines left out since the last report: at most once in
  // kDescribeEach, unless `all`.
  std::vector<std::string> LeftOut(Time now, bool all = false);

  uint64_t left_out() const;  // lines, since the start

 private:
  struct Kind {
    double tokens = kBurst;
    Time at{};
    uint64_t left_out = 0;
  };

  mutable Mutex mutex_;
  std::map<std::string, Kind, std::less<>> kinds_ PLUMB_GUARDED_BY(mutex_);
  uint64_t unsaid_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t left_out_ PLUMB_GUARDED_BY(mutex_) = 0;
  Time stated_ PLUMB_GUARDED_BY(mutex_){};
};

}  // namespace plumbline::server
