// Where a loss ends, against where it began: a run that is ruined ends above its untrained model,
// whatever it did between. Nothing is asked of the points between, so that it holds for runs of a
// few points, and for a break within the first of them.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/series/block_medians.h"

namespace plumbline::rules {

struct EndFigures {
  bool known = false;     // from kFewest points on
  bool above = false;     // the end stands a third above the beginning, beyond noise
  uint64_t points = 0;    // of the run
  uint64_t begin_of = 0;  // points that `begin` is the median of
  uint64_t end_of = 0;
  double begin = 0;  // ln value
  double end = 0;
  double error = 0;        // standard error of their difference
  int64_t onset_step = 0;  // after the last point that was no higher than the beginning
  double highest = 0;      // ln value, of a block
};

inline constexpr uint64_t kFewestForEnd = 8;

// `first`: ln values of the first points, at most 16. `all`: of all of them.
EndFigures CompareEnd(std::span<const double> first, const BlockMedians& all, uint64_t points);

}  // namespace plumbline::rules
