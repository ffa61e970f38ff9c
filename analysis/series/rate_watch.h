// When a learning rate goes up again, and when it is back where it was.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/series/excursion.h"
#include "base/archive.h"

namespace plumbline::rules {

// What the newest value of a rate is.
struct RateMove {
  bool rose = false;       // back to 1.5 times a low that was at most 3/4 of an earlier value
  bool restarted = false;  // ... and as a schedule restarts: see RateWatch
  bool back = false;       // it has fallen to where it was before that
};

// One series of a rate.
//
// A schedule restarts where the rate had fallen to half of an earlier maximum or less, at least
// doubles from there, and goes no higher than that maximum: what repeats a curve, or a lower one,
// does so, and no warm-up, decay or slip of a digit. It is back at 1.5 times the low or under, from
// which on rose above says that it had not risen. A resume is no restart: it may have lost more
// than its place in the schedule (health/learning-rate).
class RateWatch {
 public:
  // The next value. `rose` and `restarted` again and again while it rises; a warm-up is none.
  RateMove Take(uint32_t attempt, int64_t step, double rate);
  // Has restarted, and is not back.
  bool up() const { return up_; }
  const ScheduleRestart& restart() const { return restart_; }
  double newest() const { return newest_; }  // of the attempt
  void Persist(Archive& a) { a(high_, low_, attempt_, newest_, trough_, up_, restart_); }

 private:
  bool Rose(double rate);
  void Follow(int64_t step, double rate, RateMove* move);

  double high_ = 0;
  double low_ = 0;  // since high_
  uint32_t attempt_ = 0;
  double newest_ = NAN;       // of the attempt, as the next one
  double trough_ = HUGE_VAL;  // the last value that was lower than the one before it
  bool up_ = false;
  ScheduleRestart restart_;
};

}  // namespace plumbline::rules
