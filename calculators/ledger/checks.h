// Finds ledger entries that are not credible: the numbers of the findings ledger/*.
#pragma once

#include <vector>

#include "calculators/ledger/estimate.h"

namespace plumbline::ledger {

// For one multiplier: whether its change helps on the first evaluation set and not on the second.
struct Leak {
  size_t pairs = 0;  // pairs with both losses on both sides; 0 if not judged
  double mean = 0;   // D, of ln loss
  double z = 0;      // D in standard deviations
  bool found = false;
};

struct Leaks {
  std::vector<Leak> of;  // by multiplier
  size_t judged = 0;
  double threshold = 0;  // of z
  double freedom = 0;    // degrees of freedom of Student's t
};

// One in a hundred ledgers without a leak has a finding.
Leaks FindLeaks(const Ledger& ledger, const Estimate& estimate, const Allowances& allowances);

// Tests whether the multipliers grow or shrink together from their smallest to their largest scale.
struct ScaleBias {
  size_t judged = 0;  // multipliers with at least two scales; 0 if not judged
  double mean = 0;    // mean of Y at the largest scale minus Y at the smallest
  double sd = 0;
  double z() const { return mean / sd; }
  bool found() const;
};

ScaleBias FindScaleBias(const Estimate& estimate, const Allowances& allowances);

// z from which on a stack contradicts the product of the claims: one in a hundred.
inline constexpr double kOverstated = 2.33;
inline constexpr double kScaleBias = 3;      // |z|
inline constexpr double kLeastLeak = 0.001;  // of ln loss

}  // namespace plumbline::ledger
