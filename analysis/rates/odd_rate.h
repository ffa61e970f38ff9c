// Detects values that no learning rate may have: NaN, and below 0. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

struct OddRate {
  static constexpr uint64_t kFewest = 3;      // steps
  static constexpr double kRounded = -1e-12;  // error of a cosine in floating point

  struct Kind {
    uint64_t steps = 0;
    int64_t first = 0, last = 0;
    bool reported = false;
    void Take(int64_t step) {
      if (steps++ == 0) first = step;
      last = std::max(last, step);
    }
    // Returns true once.
    bool Begins() {
      if (reported || steps < kFewest) return false;
      return reported = true;
    }
    void Persist(Archive& a) { a(steps, first, last, reported); }
  };
  Kind nan, negative;
  double lowest = 0;

  bool reported() const { return nan.reported || negative.reported; }
  // Takes a value that is not NaN, because NaN must be in consecutive steps.
  void Finite() {
    if (!nan.reported) nan.steps = 0;
  }
  void Take(int64_t step, double value) {
    if (std::isnan(value)) return nan.Take(step);
    Finite();
    if (value < kRounded) {
      negative.Take(step);
      lowest = std::min(lowest, value);
    }
  }
  void Persist(Archive& a) { a(nan, negative, lowest); }
};

}  // namespace plumbline::analysis
