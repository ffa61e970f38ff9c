// One series of a policy's training, and the condition that it has come to.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/policy/collapse_courses.h"
#include "analysis/policy/mismatch_course.h"
#include "analysis/policy/policy_metric.h"
#include "base/archive.h"

namespace plumbline::analysis {

class PolicySeries {
 public:
  static constexpr uint64_t kTenPoints = 10;
  static constexpr uint64_t kConstantReward = 50;  // points
  static constexpr double kSpreadless = 0.99, kMostClipped = 0.5;
  // Shares of truncated answers: most of them, after a level at which most of them end.
  static constexpr double kMostTruncated = 0.5, kFewTruncated = 0.2;

  // Takes the next point, which must be finite. Returns true if a condition has just begun to hold;
  // of one series only the first is kept.
  bool Take(PolicyKind kind, int64_t step, double value);

  // True if a preference loss is ln 2 (DPO) or 1/2 (KTO) to the four digits of a log: chosen and
  // rejected answers have equal margins.
  static bool IsUndecided(double loss);

  const RewardCourse& reward() const { return reward_; }
  const EntropyCourse& entropy() const { return entropy_; }
  const ReferenceCourse& reference() const { return reference_; }
  uint64_t points() const { return points_; }
  double newest() const { return newest_; }
  bool found() const { return found_; }
  // True if the condition is that of a reward that fell for good.
  bool collapsed() const { return collapsed_; }
  // True for a reward that had one value from the first point on.
  bool always_equal() const { return points_ > 0 && reward_.equal() == points_; }
  // True if the condition is that of a KL below 0.
  bool negative() const { return negative_; }
  // True if the condition is that of a constant: a KL of 0, a loss of ln 2.
  bool constant() const { return constant_; }
  int64_t onset() const { return onset_; }
  double measured() const { return measured_; }  // the value at which the condition began to hold
  uint64_t since() const { return since_; }      // points since then
  // True for a margin that is exactly 0 in all points.
  bool always_in_row() const { return points_ > 0 && row_.count == points_; }
  void Persist(Archive& a) {
    a(reward_, entropy_, reference_, row_, points_, newest_, found_, constant_, onset_, measured_);
    a(since_, first_, ended_, collapsed_, counts_, negative_);
  }

 private:
  bool Begin(bool begins, int64_t onset);

  RewardCourse reward_;
  EntropyCourse entropy_;
  ReferenceCourse reference_;
  PointsInARow row_;
  uint64_t points_ = 0, since_ = 0;
  uint64_t ended_ = 0;  // points under kFewTruncated
  double newest_ = NAN;
  bool found_ = false, constant_ = false, collapsed_ = false, negative_ = false;
  bool counts_ = false;            // a share that exceeded 1: it is none
  int64_t onset_ = 0, first_ = 0;  // first_: step of the first point
  double measured_ = 0;
};

}  // namespace plumbline::analysis
