// One series of a train/inference mismatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "analysis/policy/policy_metric.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Counts consecutive points that satisfy a condition.
struct PointsInARow {
  uint64_t count = 0;
  int64_t first = 0;  // step of the first such point
  // Takes a point. Returns true if the number has just become `enough`.
  bool Take(bool holds, int64_t step, uint64_t enough) {
    if (!holds) return count = 0, false;
    if (count++ == 0) first = step;
    return count == enough;
  }
  void Persist(Archive& a) { a(count, first); }
};

// Detects that the distance of trainer and engine exceeds the metric's limit, ten times the limit,
// or ten times its own past, in consecutive points. Also detects a mean importance weight that
// stays on one side of agreement for 20 points, by more than the metric's floor. Counts and skips
// points that are NaN, or infinite without a meaning: health/loss-non-finite reports these.
class MismatchCourse {
 public:
  static constexpr uint64_t kInARow = 5;        // number of points
  static constexpr uint64_t kBeyondLimit = 10;  // number of points
  static constexpr uint64_t kSteady = 20;       // number of points on one side
  // Factor over the limit for an error; factor over the median of the past.
  static constexpr double kTimes = 10;
  static constexpr size_t kFewestPast = 10;

  enum class Event : uint8_t { kNone, kAboveLimit, kAboveTenLimits, kSteady, kAbovePast };

  // Takes the next point. Returns the worst condition that has just begun to hold.
  Event Take(const PolicyMetric& metric, int64_t step, double value);

  uint64_t points() const { return points_; }
  double newest() const { return newest_; }
  double past() const { return median_; }  // median of the past distances; NaN if not known
  int64_t onset(Event event) const;
  void Persist(Archive& a) {
    a(points_, newest_, median_, stale_, stride_, skipped_, past_, limit_, ten_, steady_, own_);
  }

 private:
  void Remember(double distance);

  uint64_t points_ = 0;
  double newest_ = std::numeric_limits<double>::quiet_NaN();
  double median_ = std::numeric_limits<double>::quiet_NaN();
  uint64_t stale_ = 0;        // number of points since the median was computed
  uint64_t stride_ = 1;       // every stride-th distance is kept
  uint64_t skipped_ = 0;      // number of distances since the last kept one
  std::vector<double> past_;  // kept distances, at most kMostPast
  PointsInARow limit_, ten_, steady_, own_;
};

}  // namespace plumbline::analysis
