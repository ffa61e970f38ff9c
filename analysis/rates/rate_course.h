// The course of one learning rate over the steps of a run and its resumes, in bounded memory.
//
//   rate  __            __ restart: the resume begins at the top again
//        /  \__        |  \.
//       /      \__.....|   \__
//      /       step ^ resume
//
// A resume at step s goes on from what earlier attempts told below s; what they told from s on it
// overwrites.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

struct RatePoint {
  int64_t step = 0;
  double rate = 0;
  void Persist(Archive& a) { a(step, rate); }
};

// Behind a resume the rate is back at the top though it had fallen.
struct RateRestart {
  double highest = 0;  // before the resume
  RatePoint before;    // the last one that the resume goes on from
  RatePoint after;     // its first
};

// The rate leaves a floor at which it stood, in one step, for much more than that: a schedule that
// begins anew without a resume that the steps show.
struct RateAnew {
  double highest = 0;
  RatePoint floor;         // where it began to stand there
  uint64_t floor_for = 0;  // points
  RatePoint after;
};

// A resume falls far below the rate that it goes on from and rises above it again: a schedule that
// begins anew with its warm-up.
struct RateRewarmed {
  double highest = 0;  // before the resume
  RatePoint before;    // the last one that the resume goes on from
  RatePoint lowest;    // the first one after it
  RatePoint after;     // at which it was seen
};

// In one step the rate is a hundred times what it was, and what it ever was.
struct RateLeap {
  RatePoint before, after;
};

// Behind a resume the schedule runs `multiple` times as fast as before it.
struct RateFaster {
  uint64_t multiple = 0;
  double measured = 0;                       // of the slopes
  double slope_before = 0, slope_after = 0;  // a step
  int64_t resumed = 0;                       // first step of the attempt
  int64_t step = 0;                          // at which it was seen
};

class RateCourse {
 public:
  // Steps of one attempt ascend, attempts too; `rate` is finite, at least 0.
  void Take(uint32_t attempt, uint32_t world_size, int64_t step, double rate);

  // The attempt's next point would be none at which Restart or Faster look.
  bool GoesOn(uint32_t attempt) const {
    return attempt == attempt_ && points_ > 0 && !(may_rewarm_ && points_ < kRewarmsWithin) &&
           (resumed_.size() < kFirstLook || points_ >= kLastLook);
  }

  // Of the newest point, once an attempt. At its first point: at least half of the maximum that the
  // points before the resume had, and twice the last of these, below half of it; a schedule that
  // did the same within the run is cyclic, and none; nor is one that may have come to the bottom of
  // a cycle.
  std::optional<RateRestart> Restart() const;
  // Of the newest point: it is four times or more what stood for at least three points before it,
  // at a quarter to a fiftieth of the maximum.
  std::optional<RateAnew> Anew() const;
  bool JumpsFromFloor(double rate) const {
    return points_ > 0 && at_rest_ >= kFloorFor && rest_.rate > 0 && rate >= 4 * rest_.rate;
  }
  // Of the newest point: the attempt began at half or less of the rate that it goes on from, and
  // has risen to 1.5 times that, which was below three quarters of the maximum.
  std::optional<RateRewarmed> Rewarmed() const;
  // Of the newest point: a hundred times the one before it, which stood there for ten points, and
  // the maximum of all.
  std::optional<RateLeap> Leap() const;
  // The slopes on both sides of the resume differ by a whole multiple (to 2 %) that the world's
  // size explains, where it is known: it, a divisor of it, or its growth.
  std::optional<RateFaster> Faster() const;

  // Steps from the run's first one to where the rate reached its maximum, from below half of it;
  // nullopt: not known yet, or the beginning was not seen.
  std::optional<int64_t> WarmUp() const;
  // The step in which the rate came to rest, at a quarter of its maximum or less.
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

  // Points of a resume after which its slope is looked at, the first and the last time.
  static constexpr uint64_t kFirstLook = 16, kLastLook = 128;
  static constexpr size_t kKept = 1024;
  static constexpr size_t kRecent = 128;
  static constexpr uint64_t kSettled = 10;
  static constexpr uint64_t kFloorFor = 3;
  static constexpr double kRewarmsFrom = 0.5, kRewarmsBelow = 0.75, kRewarmsTo = 1.5;
  static constexpr uint64_t kRewarmsWithin = 2048;  // points of the attempt
  static constexpr double kLeap = 100;              // times the rate before
  static constexpr uint64_t kLeapsAfter = 10;       // points of one value

  std::vector<RatePoint> kept_;  // every stride_-th of what was told, all attempts, by step
  uint64_t stride_ = 1;
  uint64_t skipped_ = 0;            // since the last one kept
  std::vector<RatePoint> recent_;   // the newest, each
  std::vector<RatePoint> resumed_;  // before this attempt: what it goes on from; empty: the first
  RatePoint first_;                 // of the run
  RatePoint highest_{0, -1};        // over the steps that count
  RatePoint rest_;                  // where the newest value began
  uint32_t attempt_ = 0;
  uint32_t world_ = 0, world_before_ = 0;  // 0: unknown
  uint64_t points_ = 0;                    // of this attempt
  uint64_t since_highest_ = 0;
  uint64_t at_rest_ = 0;     // points of the newest value
  RatePoint left_;           // where the value before that began
  uint64_t left_for_ = 0;    // points of it, of this attempt
  RatePoint begun_;          // the attempt's first
  bool may_rewarm_ = false;  // it began far below where the resume goes on from
};

}  // namespace plumbline::rules
