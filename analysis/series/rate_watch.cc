#include "analysis/series/rate_watch.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

constexpr double kAgain = 1.5;       // the rate rose again if it exceeds a low by this factor
constexpr double kRounded = 1.0001;  // tolerance for rates printed with few digits

}  // namespace

RateMove RateWatch::Take(uint32_t attempt, int64_t step, double rate) {
  RateMove move;
  if (!(rate >= 0) || !std::isfinite(rate)) return move;
  if (attempt != attempt_) {
    attempt_ = attempt;
    newest_ = NAN;
    trough_ = HUGE_VAL;
    up_ = false;
  }
  if (newest_ > 0 && rate >= kJump * newest_) jump_ = {step, newest_, rate};
  Follow(step, rate, &move);
  move.rose = Rose(rate);
  newest_ = rate;
  return move;
}

// Updates the position within the schedule.
void RateWatch::Follow(int64_t step, double rate, RateMove* move) {
  if (rate < newest_) trough_ = rate;
  const bool fell = trough_ <= high_ / 2;
  move->restarted = fell && rate > newest_ && rate >= 2 * trough_ && rate <= kRounded * high_;
  if (move->restarted) {
    if (!up_ || restart_.from != trough_) restart_ = {step, trough_, rate};
    restart_.to = rate;
    up_ = true;
  } else if (up_ && rate <= kAgain * restart_.from) {
    up_ = false;
    move->back = true;
  }
}

bool RateWatch::Rose(double rate) {
  if (high_ > 0 && low_ <= 0.75 * high_ && rate > low_ && rate >= kAgain * low_) {
    low_ = rate;  // a further factor of kAgain counts as another rise
    return true;
  }
  if (rate > high_) high_ = low_ = rate;
  low_ = std::min(low_, rate);
  return false;
}

}  // namespace plumbline::analysis
