// One series of a loss scale, or of skipped steps, of health/loss-scale.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>

#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

inline constexpr double kScaleIsBack = 1.0 / 16;  // of the highest scale
inline constexpr uint64_t kScaleStartUp = 100;    // points of each attempt
inline constexpr size_t kScaleWindow = 100;       // points
inline constexpr int64_t kFewHalvings = 3;
inline constexpr double kScaleFall = 4;              // over the window
inline constexpr double kTinyScale = 1e-3;           // of 1, and of the highest
inline constexpr double kMostSkipped = 50;           // of kSkipWindow steps
inline constexpr double kFalseAlarmsOfScale = 3e-3;  // none of 1,000 runs: 3 / 1000 at 95 %

struct ScalePoint {
  int64_t step = 0;
  double scale = 0;
  int64_t halvings = 0;  // since the previous point
  void Persist(Archive& a) { a(step, scale, halvings); }
};

// One series of a loss scale, or of skipped steps.
struct ScaleSeries {
  uint32_t attempt = 0;
  uint64_t points = 0;  // of the attempt
  uint64_t judged = 0;  // over all attempts, after their start-up
  uint64_t unusable = 0;
  ScalePoint newest;
  std::deque<ScalePoint> window;  // after the start-up; the first point is the starting value
  SkipWindow skips;
  SkipStreak streak;
  double highest = 0, lowest = HUGE_VAL;
  bool running = true;  // for skipped steps: the series may still be a running count
  bool reported = false;
  ScalePoint low;  // newest point when a fall was reported; its scale is 0 if there was none
  int64_t step_first = 0;
  // True if a reported fall is over: the scale has doubled several times, nearly to its highest
  // value.
  bool came_back() const {
    return low.scale > 0 && newest.scale > 4 * low.scale && newest.scale >= kScaleIsBack * highest;
  }
  void Persist(Archive& a) {
    a(attempt, points, judged, unusable, newest, window, skips, highest, lowest, running, reported);
    a(low, step_first, streak);
  }
};

// Counts a fall to three quarters or less once for each factor of two.
inline int64_t HalvingsOf(double before, double now) {
  if (!(now <= 0.75 * before)) return 0;
  return std::max<int64_t>(1, std::llround(std::log2(before / now)));
}

}  // namespace plumbline::rules
