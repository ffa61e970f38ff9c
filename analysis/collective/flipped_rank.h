// Finds the one rank whose values were subtracted instead of added.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/collective/sum_columns.h"

namespace plumbline::analysis {

struct FlippedRank {
  int row = -1;  // of the inputs; -1 if none
  int32_t compared = 0;

  bool found() const { return row >= 0; }
};

// Call if no candidate explains the results. The errors y - s must be closer to -2 x_r than to 0 on
// three of four elements, and on at least 32 distinct ones; a replay with -x_r in place of x_r must
// give every result bit for bit, and x_r must differ from every other rank's values by a tenth
// (root mean square): sums over half of the ranks do the same if all values are equal.
FlippedRank FindFlippedRank(const ReductionCase& c, const std::vector<SumColumn>& columns);

}  // namespace plumbline::analysis
