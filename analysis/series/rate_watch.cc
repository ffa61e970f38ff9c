#include "analysis/series/rate_watch.h"

#include <algorithm>
#include <cmath>

namespace plumbline::rules {

bool RateWatch::Restarts(double rate) {
  if (!(rate >= 0) || !std::isfinite(rate)) return false;
  if (high_ > 0 && low_ <= 0.75 * high_ && rate > low_ && rate >= 1.5 * low_) {
    low_ = rate;  // as it goes on rising, it restarts again
    return true;
  }
  if (rate > high_) high_ = low_ = rate;
  low_ = std::min(low_, rate);
  return false;
}

}  // namespace plumbline::rules
