// One series of a policy's training, and the condition that was detected in it.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/policy/collapse_courses.h"
#include "analysis/policy/mismatch_course.h"
#include "analysis/policy/policy_metric.h"
#include "analysis/policy/staleness_course.h"
#include "base/archive.h"

namespace plumbline::analysis {

class PolicySeries {
 public:
  static constexpr uint64_t kTenPoints = 10;
  static constexpr uint64_t kConstantReward = 50;  // number of points
  static constexpr double kSpreadless = 0.99, kMostClipped = 0.5;
  // With few groups in a step, steps without spread are common, and ten in a row may be chance.
  static constexpr double kChance = 1e-3;
  // Limits of the share of truncated answers: most are truncated now; earlier, few were.
  static constexpr double kMostTruncated = 0.5, kFewTruncated = 0.2;

  // A share of truncated answers of at least kAllTruncated in each of the first kFromTheFirst
  // points.
  static constexpr double kAllTruncated = 0.9;
  static constexpr uint64_t kFromTheFirst = 20;
  static constexpr uint64_t kFewestPairs = 14;  // below this, no row of points is beyond a coin's
  // The first margin is at most this part of the margin at which an inverted preference is found: a
  // policy that begins as its reference has a margin of 0.
  static constexpr double kMarginOfStart = 0.3;

  // Takes the next point, which must be finite. Returns true if a condition has just begun to hold.
  // Keeps only the first condition of a series.
  bool Take(PolicyKind kind, int64_t step, double value);

  // True if a preference loss is ln 2 (DPO) or 1/2 (KTO), to the four digits that logs print.
  // Chosen and rejected answers then have equal margins.
  static bool IsUndecided(double loss);

  const RewardCourse& reward() const { return reward_; }
  const EntropyCourse& entropy() const { return entropy_; }
  const ReferenceCourse& reference() const { return reference_; }
  uint64_t points() const { return points_; }
  double newest() const { return newest_; }
  bool found() const { return found_; }
  // True if the condition is a reward that fell permanently.
  bool collapsed() const { return collapsed_; }
  // True for a reward that has always had the same value.
  bool always_equal() const { return points_ > 0 && reward_.equal() == points_; }
  // True if the condition is a KL below 0.
  bool negative() const { return negative_; }
  // True if the condition is that answers are truncated from the first point on.
  bool from_the_first() const { return from_the_first_; }
  // Newest points in a row with a margin below 0, or an accuracy below 0.5; at the detection, if
  // the condition holds.
  uint64_t below() const { return found_ ? below_at_ : below_.count; }
  const StalenessCourse& staleness() const { return staleness_; }
  // True if the condition is a constant value: a KL of 0, a loss of ln 2.
  bool constant() const { return constant_; }
  int64_t onset() const { return onset_; }
  double measured() const { return measured_; }  // the value at which the condition began to hold
  uint64_t since() const { return since_; }      // number of points since then
  // True for a margin that is exactly 0 in all points.
  bool always_in_row() const { return points_ > 0 && row_.count == points_; }
  void Persist(Archive& a) {
    a(reward_, entropy_, reference_, row_, points_, newest_, found_, constant_, onset_, measured_);
    a(since_, first_, ended_, collapsed_, counts_, negative_, earlier_);
    a(staleness_, below_, below_at_, begin_, all_truncated_, from_the_first_);
  }

 private:
  bool Begin(bool begins, int64_t onset);
  bool Spreadless(bool holds, int64_t step);
  bool Truncated(int64_t step, double value);
  bool Below(bool holds, int64_t step);

  RewardCourse reward_;
  EntropyCourse entropy_;
  ReferenceCourse reference_;
  StalenessCourse staleness_;
  PointsInARow row_;
  PointsInARow below_;          // of margins below 0, accuracies below 0.5
  uint64_t below_at_ = 0;       // below_.count when the condition began to hold
  double begin_ = NAN;          // the first value
  uint64_t all_truncated_ = 0;  // first points with at least kAllTruncated
  bool from_the_first_ = false;
  uint64_t earlier_ = 0;  // points without spread before the newest row of them
  uint64_t points_ = 0, since_ = 0;
  uint64_t ended_ = 0;  // number of points below kFewTruncated
  double newest_ = NAN;
  bool found_ = false, constant_ = false, collapsed_ = false, negative_ = false;
  bool counts_ = false;            // a value exceeded 1, so the series is a count, not a share
  int64_t onset_ = 0, first_ = 0;  // first_: step of the first point
  double measured_ = 0;
};

}  // namespace plumbline::analysis
