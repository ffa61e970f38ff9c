// A series of utilisation or speed over time, and whether it fell. Used by performance/mfu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/archive.h"

namespace plumbline::rules {

struct SpeedSeries {
  static constexpr size_t kHalf = 64, kShort = 16;  // points of a drop, of a collapse
  static constexpr double kDrop = 0.1, kDeviations = 6, kCollapse = 0.5;
  std::deque<double> newest;  // 2 * kHalf
  std::deque<int64_t> steps;
  std::deque<double> ratios;  // recorded / computed
  uint64_t points = 0, above_one = 0;
  int64_t first = 0, last = 0;
  int64_t worst_step = 0, fell_step = 0;
  double worst = 0, before = 0, after = 0;
  bool fell = false;
  uint64_t fell_of = kHalf;  // points of which `after` is the median
  double collapse = kCollapse;
  bool judges_drops = true;  // else collapses only
  bool seconds = false;      // values are 1 / the logged ones
  void Persist(Archive& a) {
    a(newest, steps, ratios, points, above_one, first, last, worst_step, fell_step, worst, before,
      after, fell, fell_of, collapse, judges_drops, seconds);
  }

  void Add(int64_t step, double value);
  void AddRatio(double ratio);

 private:
  double Median(size_t from, size_t count) const;
  void LookForDrop();
  // The half of a block before the newest one may hold the fall itself.
  void LookForCollapse();
};

}  // namespace plumbline::rules
