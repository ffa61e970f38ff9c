// Steps that a loss scaler skipped, point by point: how many lately, and whether it skips on and
// on. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/archive.h"

namespace plumbline::rules {

inline constexpr int64_t kSkipWindow = 1000;  // steps

struct SkipPoint {
  int64_t step = 0;
  int64_t steps = 0;   // since the point before
  double skipped = 0;  // a mean over ranks is no whole number
  void Persist(Archive& a) { a(step, steps, skipped); }
};

// The newest points that span at most kSkipWindow steps.
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

// Newest points in a row of which half of the steps or more were skipped.
struct SkipStreak {
  static constexpr uint64_t kStormRows = 10;  // points in a row
  // ... while a scaler looks for its scale, from 2^32 on.
  static constexpr uint64_t kStormAtBegin = 50;

  uint64_t rows = 0;            // 0: the newest point is none
  int64_t first = 0, last = 0;  // steps of it, or of the storm
  bool begins = false;          // it began with the attempt
  bool storm = false;           // one was seen, and stays `first`
  void Persist(Archive& a) { a(rows, first, last, begins, storm); }

  // `points`: of the attempt, before this one.
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
  // True once, when it has become a storm.
  bool Begins() {
    const bool now = !storm && rows >= enough();
    storm |= now;
    return now;
  }
};

}  // namespace plumbline::rules
