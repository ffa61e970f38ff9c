// Finds wide sums that were rounded away from zero when they were stored.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/collective/sum_columns.h"

namespace plumbline::analysis {

struct StoredAway {
  int32_t compared = 0;
  int32_t differ = 0;  // results that rounding to nearest does not give
  double bias = 0;     // of the results, relative

  bool found() const { return differ > 0; }
};

// Call if no candidate explains the results. Every result must be the exact sum (or that in f32),
// rounded away from zero to 16 bits, and at least 32 must not be the one to nearest.
StoredAway FindStoredAway(const ReductionCase& c, const std::vector<SumColumn>& columns);

}  // namespace plumbline::analysis
