// Updates that are stored on one side of before + intended: cut toward zero, or always away from
// it, down, up. Rounding to nearest errs on both sides and stochastic rounding is right on average;
// one side is a drift that every step adds to.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/sample/sample.h"

namespace plumbline::rules {

struct OneSidedStore {
  std::string side;       // "toward zero", "away from zero", "down", "up"; "": none
  size_t rounded = 0;     // sampled elements whose before + intended is no value of the dtype
  size_t matched = 0;     // of these, on that side
  size_t telling = 0;     // of these, not what rounding to nearest gives
  double log_chance = 0;  // ln of the chance that stochastic rounding gave them all
  // Sum of |after - (before + intended)| over those on the side, over the sum of |intended|: how
  // much the storing moves the weights beside what the optimizer does.
  double drift = 0;
  std::vector<size_t> listed;  // a few telling ones
};

// Of at least 64 elements that had to be rounded 99 in 100 lie on one side, at least 16 of them
// where the nearest value is on the other, 16 moved at all, and stochastic rounding does that with
// a chance below 1e-9.
OneSidedStore FindOneSidedStore(const UpdateCase& c);

}  // namespace plumbline::rules
