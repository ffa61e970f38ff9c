// Compares the rewards at the ends of two sides. A reward may be zero or negative, so it is
// compared by difference, not by ratio.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "audit/diff/side.h"

namespace plumbline::audit {

struct RewardDiff {
  std::string name;
  size_t points = 0;    // number of the newest common steps: an eighth, at least 8 (or all of them)
  double a = 0, b = 0;  // median over these steps; each step: the mean of the side's runs
  // True if there are 8 points, and all of one side lie above all of the other, or all differences
  // at one step have one sign and a mean of 7.3 standard errors and of a fifth of the rewards. If
  // both sides have one distribution and points are independent, the probability is 2 / C(16, 8),
  // 1.6e-4, for each of the two. Seeds of one setting may differ as much.
  bool apart = false;

  // Returns how far B ends below A, as a share of the larger magnitude: at most 2. If B is not
  // below A, returns 0 or less.
  double shortfall() const;
};

// Returns the series of role reward that all runs of both sides have, by name. A step where a value
// is not finite is left out. A series without common steps is left out. Pure.
std::vector<RewardDiff> CompareRewards(const DiffSide& a, const DiffSide& b);

}  // namespace plumbline::audit
