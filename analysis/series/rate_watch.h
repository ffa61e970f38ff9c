// Detects when a learning rate rises again, and when it has returned to its earlier value.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/series/excursion.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Classification of the newest value of a rate.
struct RateMove {
  bool rose = false;       // rose to 1.5 times a low that was at most 3/4 of an earlier value
  bool restarted = false;  // ... as a schedule restarts: see RateWatch
  bool back = false;       // fell to its value before the restart
};

// Follows one series of a learning rate.
//
// A schedule restarts if the rate had fallen to at most half of an earlier maximum, then at least
// doubles, and does not exceed that maximum. A repeated curve, or a lower one, does so. A warm-up,
// a decay or a typing error does not. The rate is back when it is at most 1.5 times the low. A
// resume is not a restart, because it may have lost more than its position in the schedule
// (health/learning-rate).
class RateWatch {
 public:
  // Takes the next value. While the rate rises, `restarted` is set for each value, and `rose` again
  // for each further factor of 1.5. A warm-up sets neither.
  RateMove Take(uint32_t attempt, int64_t step, double rate);
  // True if the rate has restarted and is not back.
  bool up() const { return up_; }
  const ScheduleRestart& restart() const { return restart_; }
  double newest() const { return newest_; }  // of the attempt
  void Persist(Archive& a) { a(high_, low_, attempt_, newest_, trough_, up_, restart_); }

 private:
  bool Rose(double rate);
  void Follow(int64_t step, double rate, RateMove* move);

  double high_ = 0;
  double low_ = 0;  // lowest value since high_
  uint32_t attempt_ = 0;
  double newest_ = NAN;       // of the attempt
  double trough_ = HUGE_VAL;  // the last value that was lower than its predecessor
  bool up_ = false;
  ScheduleRestart restart_;
};

}  // namespace plumbline::analysis
