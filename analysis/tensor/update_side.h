// Detects updates that are stored on one side of before + intended: always towards zero, away from
// zero, down, or up. Rounding to nearest errs on both sides, and stochastic rounding is right on
// average. One side is a drift that every step increases.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/sample/sample.h"

namespace plumbline::analysis {

struct OneSidedStore {
  std::string side;        // "toward zero", "away from zero", "down", "up"; "" if none
  size_t rounded = 0;      // sampled elements whose before + intended is not a value of the dtype
  size_t matched = 0;      // of `rounded`: those stored on that side
  size_t informative = 0;  // of `matched`: those that rounding to nearest would store differently
  double log_chance = 0;   // ln of the probability that stochastic rounding gave all of them
  // Sum of |after - (before + intended)| over those on the side, divided by the sum of |intended|:
  // how much the rounding moves the weights in addition to the optimizer.
  double drift = 0;
  std::vector<size_t> listed;  // indices of a few informative elements
};

// Finds such a side if all these conditions hold: at least 64 elements had to be rounded; 99 % of
// them were stored on that side; for at least 16 of these the nearest value is on the other side;
// 16 elements moved; the probability under stochastic rounding is below 1e-9.
OneSidedStore FindOneSidedStore(const UpdateCase& c);

}  // namespace plumbline::analysis
