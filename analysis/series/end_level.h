// Compares where a loss ends with where it began. A ruined run ends above its untrained model. The
// points between are not used. So this works for runs of a few points, and for a failure within the
// first points.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "analysis/series/block_medians.h"

namespace plumbline::analysis {

struct EndFigures {
  bool known = false;     // true from kFewestForEnd points on
  bool above = false;     // the end is a third above the beginning, beyond noise
  uint64_t points = 0;    // points of the run
  uint64_t begin_of = 0;  // number of points of which `begin` is the median
  uint64_t end_of = 0;
  double begin = 0;  // ln value
  double end = 0;
  double error = 0;        // standard error of end - begin
  int64_t onset_step = 0;  // after the last point that was at most the beginning's level
  int64_t rise_step = 0;   // after the last point before it that was at the lowest level
  double highest = 0;      // ln value, of the highest block
};

inline constexpr uint64_t kFewestForEnd = 8;

// `first` has the ln values of the first points, at most 16. `all` has the block medians of all
// points.
EndFigures CompareEnd(std::span<const double> first, const BlockMedians& all, uint64_t points);

// A loss that explodes at the end of its data: the newest points lie far above all before them, and
// do not fall back. Far is twice their highest value. For values of both signs (`linear`) it is
// twice the span of the values before.
struct ExplosionFigures {
  bool explodes = false;
  bool linear = false;
  double highest = 0;     // of all points before: ln value, or the value if linear
  double end = 0;         // median of the newest 3, or the newest of 3 that rise each
  double span = 0;        // highest - lowest of the points before
  uint64_t rows = 0;      // number of newest points above all before them
  int64_t rise_step = 0;  // after the last point that was at the lowest level
  uint64_t points = 0;
};

// `newest` has steps and ln values, or values if `linear`; `all` has the block medians of the whole
// series.
ExplosionFigures LookForExplosion(std::span<const std::pair<int64_t, double>> newest, bool linear,
                                  const BlockMedians& all);

}  // namespace plumbline::analysis
