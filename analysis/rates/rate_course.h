// The course of one learning rate over the steps of a run and its resumes, in bounded memory.
//
//   rate  __            __ restart: the resume begins at the top again
//        /  \__        |  \.
//       /      \__.....|   \__
//      /       step ^ resume
//
// A resume at step s continues from the values of earlier attempts below s, and replaces their
// values from s on.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

struct RatePoint {
  int64_t step = 0;
  double rate = 0;
  void Persist(Archive& a) { a(step, rate); }
};

// After a resume the rate is back at the maximum although it had fallen.
struct RateRestart {
  double highest = 0;  // before the resume
  RatePoint before;    // the last point before the resume
  RatePoint after;     // its first
};

// The rate was constant at a low value and leaves it, in one step, for a much higher one: a
// schedule that begins again without a visible resume.
struct RateAnew {
  double highest = 0;
  RatePoint floor;         // where the constant value began
  uint64_t floor_for = 0;  // points
  RatePoint after;
};

// A resume begins far below the previous rate and rises above it again: a schedule that begins
// again with its warm-up.
struct RateRewarmed {
  double highest = 0;  // before the resume
  RatePoint before;    // the last point before the resume
  RatePoint lowest;    // the first point after it
  RatePoint after;     // the point at which it was detected
};

// In one step the rate becomes at least a hundred times its previous value, and its maximum.
struct RateLeap {
  RatePoint before, after;
};

// After a resume the schedule runs `multiple` times as fast as before.
struct RateFaster {
  uint64_t multiple = 0;
  double measured = 0;                       // ratio of the slopes
  double slope_before = 0, slope_after = 0;  // per step
  int64_t resumed = 0;                       // first step of the attempt
  int64_t step = 0;                          // step at which it was detected
};

class RateCourse {
 public:
  // Steps ascend within an attempt, and attempts ascend. `rate` is finite and at least 0.
  void Take(uint32_t attempt, uint32_t world_size, int64_t step, double rate);

  // Returns true if the attempt's next point is one at which neither Restart nor Faster test.
  bool GoesOn(uint32_t attempt) const {
    return attempt == attempt_ && points_ > 0 && !(may_rewarm_ && points_ < kRewarmsWithin) &&
           (resumed_.size() < kFirstLook || points_ >= kLastLook);
  }

  // Tests the newest point, once per attempt. At its first point: at least half of the maximum
  // before the resume, and at least twice the last point, which is below half of the maximum. If a
  // schedule did the same within the run, it is cyclic and is not reported. If it may have been at
  // the bottom of a cycle, it is not reported either.
  std::optional<RateRestart> Restart() const;
  // Tests the newest point: at least four times the value that was constant for at least three
  // points before it, at a quarter to a fiftieth of the maximum.
  std::optional<RateAnew> Anew() const;
  bool JumpsFromFloor(double rate) const {
    return points_ > 0 && at_rest_ >= kFloorFor && rest_.rate > 0 && rate >= 4 * rest_.rate;
  }
  // Tests the newest point: the attempt began at half or less of the previous rate, and has risen
  // to 1.5 times that rate, which was below three quarters of the maximum.
  std::optional<RateRewarmed> Rewarmed() const;
  // Tests the newest point: a hundred times the previous value, which was constant for ten points,
  // and the maximum of all.
  std::optional<RateLeap> Leap() const;
  // Tests whether the slopes on both sides of the resume have an integer ratio (to 2 %). If the
  // world's size is known, it must explain the ratio: the size, a divisor of it, or its growth.
  std::optional<RateFaster> Faster() const;

  // Returns the number of steps from the run's first one to the maximum of the rate, from below
  // half of it. If it is not known yet, or if the beginning is missing, returns nullopt.
  std::optional<int64_t> WarmUp() const;
  // Returns the step from which on the rate is constant, at a quarter of its maximum or less.
  std::optional<RatePoint> Rest() const;

  double highest() const { return highest_.rate; }

  void Persist(Archive& a) {
    a(kept_, stride_, skipped_, recent_, resumed_, first_, highest_, rest_, attempt_, world_);
    a(world_before_, points_, since_highest_, at_rest_, left_, left_for_, begun_, may_rewarm_);
  }

 private:
  void Resume(int64_t step);
  void Begin(RatePoint point);
  void Keep(RatePoint point);
  std::vector<RatePoint> PointsBefore(int64_t step) const;
  bool Explained(uint64_t multiple) const;

  // Points of a resume at which its slope is first and last tested.
  static constexpr uint64_t kFirstLook = 16, kLastLook = 128;
  static constexpr size_t kKept = 1024;
  static constexpr size_t kRecent = 128;
  static constexpr uint64_t kSettled = 10;
  static constexpr uint64_t kFloorFor = 3;
  static constexpr double kRewarmsFrom = 0.5, kRewarmsBelow = 0.75, kRewarmsTo = 1.5;
  static constexpr uint64_t kRewarmsWithin = 2048;  // points of the attempt
  static constexpr double kLeap = 100;              // times the rate before
  static constexpr uint64_t kLeapsAfter = 10;       // points of one value

  std::vector<RatePoint> kept_;  // every stride_-th value, over all attempts, by step
  uint64_t stride_ = 1;
  uint64_t skipped_ = 0;            // since the last kept value
  std::vector<RatePoint> recent_;   // the newest values, all of them
  std::vector<RatePoint> resumed_;  // before this attempt: where it continues; empty for the first
  RatePoint first_;                 // of the run
  RatePoint highest_{0, -1};        // over the valid steps
  RatePoint rest_;                  // first point of the newest value
  uint32_t attempt_ = 0;
  uint32_t world_ = 0, world_before_ = 0;  // 0 if not known
  uint64_t points_ = 0;                    // of this attempt
  uint64_t since_highest_ = 0;
  uint64_t at_rest_ = 0;     // points of the newest value
  RatePoint left_;           // first point of the value before that
  uint64_t left_for_ = 0;    // points of it in this attempt
  RatePoint begun_;          // the attempt's first
  bool may_rewarm_ = false;  // it began far below the previous rate
};

}  // namespace plumbline::analysis
