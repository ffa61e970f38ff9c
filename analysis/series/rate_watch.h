// When a learning rate goes up again.
#pragma once

#include "base/archive.h"

namespace plumbline::rules {

// One series of a rate.
class RateWatch {
 public:
  // The next value. True: it is back to 1.5 times a low that was at most 3/4 of an earlier value;
  // again and again while it rises from there. A warm-up is none.
  bool Restarts(double rate);
  void Persist(Archive& a) { a(high_, low_); }

 private:
  double high_ = 0;
  double low_ = 0;  // since high_
};

}  // namespace plumbline::rules
