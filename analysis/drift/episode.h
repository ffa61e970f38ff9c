// Finds a stretch of steps with more drift, which begins and ends: a missed update that a later one
// repaired. Pure function of the series; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "analysis/drift/series.h"

namespace plumbline::analysis {

// One stretch in which the log of the mean square is higher, compared with the best straight line.
struct DriftEpisode {
  static constexpr size_t kFewestInside = 4, kFewestOutside = 8, kFewestBefore = 4;
  static constexpr double kDeviations = 8;

  // The rise is at least ln 2 and at least 8 standard errors by Student's t, the stretch leaves at
  // most 40 % of the line's squares, nine of ten steps inside are above the middle of both levels
  // and nine of ten outside below it, and there are 4 steps inside, before and after it, and 8 in
  // all outside. The 4 steps before it and the 4 after it are below the middle, so that a fault
  // that is there from the start is no stretch. The mean square inside is above 3e-3.
  bool found = false;
  // True if all of this holds, but at least half of the rise vanishes if each step's mean square is
  // divided by that of tokens with the same log mu.
  bool other_tokens = false;
  int64_t first = 0, last = 0;  // steps of the stretch
  int64_t after = 0;            // the first step after it
  double rise = 0;              // of log mean d^2
  double standard_error = 0;
  size_t steps = 0;
};

// If there are more than 1,024 steps, compares means of neighbouring steps, so that the steps of
// the stretch are rounded.
DriftEpisode FindEpisode(std::span<const DriftPoint> points);

}  // namespace plumbline::analysis
