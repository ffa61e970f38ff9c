// Detects when a learning rate rises again, and when it has returned to its earlier value.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/series/excursion.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The result for the newest value of a learning rate.
struct RateMove {
  bool rose = false;       // rose to 1.5 times a low that was at most 3/4 of an earlier value
  bool restarted = false;  // rose like a schedule that restarts: see RateWatch
  bool back = false;       // fell to the value before the restart
};

// Follows one series of a learning rate.
//
// A schedule restarts if the rate had fallen to at most half of an earlier maximum, then at least
// doubles, and does not exceed that maximum. This holds for a repeated curve, also for a lower one,
// but not for a warm-up, a decay or a typing error. The rate is back when it is at most 1.5 times
// the low. A resume is not a restart, because it may have lost more than its position in the
// schedule (health/learning-rate).
class RateWatch {
 public:
  // Takes the next value. While the rate rises, `restarted` is set for each value, and `rose` again
  // for each further factor of 1.5. A warm-up sets neither.
  RateMove Take(uint32_t attempt, int64_t step, double rate);
  // True if the rate has restarted and is not back yet.
  bool up() const { return up_; }
  const ScheduleRestart& restart() const { return restart_; }
  double newest() const { return newest_; }  // newest value of the attempt
  // The newest row in which the rate rose by a factor of kJump or more; `from` is 0 if there was
  // none.
  const ScheduleRestart& jump() const { return jump_; }
  static constexpr double kJump = 2.5;
  void Persist(Archive& a) { a(high_, low_, attempt_, newest_, trough_, up_, restart_, jump_); }

 private:
  bool Rose(double rate);
  void Follow(int64_t step, double rate, RateMove* move);

  double high_ = 0;
  double low_ = 0;  // lowest value since high_
  uint32_t attempt_ = 0;
  double newest_ = NAN;       // newest value of the attempt
  double trough_ = HUGE_VAL;  // the last value that was lower than its predecessor
  bool up_ = false;
  ScheduleRestart restart_, jump_;
};

}  // namespace plumbline::analysis
