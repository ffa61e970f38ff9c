// State of one series of gradient norms, including whether it was logged after clipping.
#pragma once

#include <cstdint>

#include "analysis/series/detector.h"
#include "analysis/series/standing.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Counts the points at the largest value. Norms that are logged after clipping accumulate there.
struct Ceiling {
  double value = 0;
  uint64_t at = 0;
  void Persist(Archive& a) { a(value, at); }

  void Take(double norm) {
    constexpr double kSame = 1e-4;
    if (norm > value * (1 + kSame)) {
      value = norm;
      at = 1;
    } else if (norm >= value * (1 - kSame)) {
      ++at;
    }
  }
  bool clips(uint64_t points) const { return value > 0 && at >= 8 && 50 * at >= points; }
};

struct NormSeries {
  SeriesDetector detector;
  Ceiling ceiling;
  uint64_t points = 0;
  uint64_t not_finite = 0;
  Standing standing;
  bool reported = false;  // a finding was reported
  bool reported_explosion = false;
  int64_t step_first = 0, step_last = 0;
  void Persist(Archive& a) {
    a(detector, ceiling, points, not_finite, standing, reported, reported_explosion);
    a(step_first, step_last);
  }
};

}  // namespace plumbline::analysis
