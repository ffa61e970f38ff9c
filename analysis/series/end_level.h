// Compares the end of a loss with its beginning. A failed run ends above its untrained model. Does
// not use the points between, so it works for runs of a few points, and for a failure within the
// first points.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "analysis/series/block_medians.h"

namespace plumbline::analysis {

struct EndFigures {
  bool known = false;     // true from kFewestForEnd points on
  bool above = false;     // the end is a third above the beginning, by more than noise
  uint64_t points = 0;    // number of points of the run
  uint64_t begin_of = 0;  // number of points of which `begin` is the median
  uint64_t end_of = 0;
  double begin = 0;  // level of the beginning, ln value
  double end = 0;
  double error = 0;  // standard error of end - begin
  // Step after the last point that was at most at the level of the beginning.
  int64_t onset_step = 0;
  int64_t rise_step = 0;  // step after the last earlier point that was at the lowest level
  double highest = 0;     // ln value of the highest block
};

inline constexpr uint64_t kFewestForEnd = 8;

// `first` has the ln values of the first points, at most 16. `all` has the block medians of all
// points.
EndFigures CompareEnd(std::span<const double> first, const BlockMedians& all, uint64_t points);

// A loss that explodes at the end of its data: the newest points are far above all earlier points,
// and do not fall back. "Far" means twice the highest earlier value. For values of both signs
// (`linear`), it means twice the span of the earlier values.
struct ExplosionFigures {
  bool explodes = false;
  bool linear = false;
  double highest = 0;     // highest of all earlier points: ln value, or the value if linear
  double end = 0;         // median of the newest 3, or the newest of them if each rises
  double span = 0;        // highest - lowest of the earlier points
  uint64_t rows = 0;      // number of newest points above all earlier points
  int64_t rise_step = 0;  // step after the last point that was at the lowest level
  uint64_t points = 0;
};

// `newest` has steps and ln values, or values if `linear`; `all` has the block medians of the whole
// series.
ExplosionFigures LookForExplosion(std::span<const std::pair<int64_t, double>> newest, bool linear,
                                  const BlockMedians& all);

}  // namespace plumbline::analysis
