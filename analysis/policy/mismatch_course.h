// One series of a train/inference mismatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "analysis/policy/policy_metric.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Points in a row that satisfy one condition.
struct PointsInARow {
  uint64_t count = 0;
  int64_t first = 0;  // step of the first of them
  // Returns true if they have just become `enough`.
  bool Take(bool holds, int64_t step, uint64_t enough) {
    if (!holds) return count = 0, false;
    if (count++ == 0) first = step;
    return count == enough;
  }
  void Persist(Archive& a) { a(count, first); }
};

// Reports when the distance of trainer and engine is beyond the metric's limit, at ten limits, or
// at ten times its own past, in five points in a row. A mean importance weight is also reported if
// it stays at one side of agreement for 20 points, by more than the metric's floor. Points that are
// NaN or infinite without a meaning are counted and skipped: health/loss-non-finite reports them.
class MismatchCourse {
 public:
  static constexpr uint64_t kInARow = 5;        // points
  static constexpr uint64_t kBeyondLimit = 10;  // points
  static constexpr uint64_t kSteady = 20;       // points at one side
  static constexpr double kTimes = 10;          // of the limit for an error; of the past's median
  static constexpr size_t kFewestPast = 10;

  enum class Event : uint8_t { kNone, kAboveLimit, kAboveTenLimits, kSteady, kAbovePast };

  // Takes the next point. Returns the worst condition that has just begun to hold.
  Event Take(const PolicyMetric& metric, int64_t step, double value);

  uint64_t points() const { return points_; }
  double newest() const { return newest_; }
  double past() const { return median_; }  // of the distances, NaN: not known
  int64_t onset(Event event) const;
  void Persist(Archive& a) {
    a(points_, newest_, median_, stale_, stride_, skipped_, past_, limit_, ten_, steady_, own_);
  }

 private:
  void Remember(double distance);

  uint64_t points_ = 0;
  double newest_ = std::numeric_limits<double>::quiet_NaN();
  double median_ = std::numeric_limits<double>::quiet_NaN();
  uint64_t stale_ = 0;        // points since the median was computed
  uint64_t stride_ = 1;       // every stride-th distance is kept
  uint64_t skipped_ = 0;      // since one was kept
  std::vector<double> past_;  // at most kMostPast
  PointsInARow limit_, ten_, steady_, own_;
};

}  // namespace plumbline::analysis
