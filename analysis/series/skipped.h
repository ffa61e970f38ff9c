// Counts the steps that a loss scaler skipped: the number in a recent window, and whether it
// continues to skip. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/archive.h"

namespace plumbline::analysis {

inline constexpr int64_t kSkipWindow = 1000;  // number of steps

struct SkipPoint {
  int64_t step = 0;
  int64_t steps = 0;   // number of steps since the previous point
  double skipped = 0;  // number of skipped steps; as a mean over ranks it may be fractional
  void Persist(Archive& a) { a(step, steps, skipped); }
};

// Keeps the newest points that span at most kSkipWindow steps.
struct SkipWindow {
  std::deque<SkipPoint> points;
  int64_t steps = 0;
  double skipped = 0;
  void Persist(Archive& a) { a(points, steps, skipped); }

  void Add(SkipPoint point) {
    points.push_back(point);
    steps += point.steps;
    skipped += point.skipped;
    while (points.size() > 1 && steps > kSkipWindow) {
      steps -= points.front().steps;
      skipped -= points.front().skipped;
      points.pop_front();
    }
  }
  void Clear() { *this = SkipWindow(); }
};

// Counts the newest consecutive points in which at least half of the steps were skipped.
struct SkipStreak {
  static constexpr uint64_t kStormRows = 10;  // number of consecutive points
  // The same while a scaler searches for its scale, from 2^32 on.
  static constexpr uint64_t kStormAtBegin = 50;

  uint64_t rows = 0;            // number of such points; 0 if the newest point is not one
  int64_t first = 0, last = 0;  // steps of the streak, or of the storm
  bool begins = false;          // the streak began with the attempt
  bool storm = false;           // a storm was seen; `first` then stays
  void Persist(Archive& a) { a(rows, first, last, begins, storm); }

  // `points` is the number of points of the attempt before this one.
  void Take(int64_t step, double skipped, int64_t steps, uint64_t points) {
    constexpr uint64_t kAtBegin = 3;
    if (skipped < std::max(1.0, 0.5 * static_cast<double>(steps))) {
      rows = 0;
      return;
    }
    if (rows++ == 0 && !storm) {
      first = step;
      begins = points < kAtBegin;
    }
    last = step;
  }
  uint64_t enough() const { return begins ? kStormAtBegin : kStormRows; }
  // Returns true once, when the streak becomes a storm.
  bool Begins() {
    const bool now = !storm && rows >= enough();
    storm |= now;
    return now;
  }
};

}  // namespace plumbline::analysis
