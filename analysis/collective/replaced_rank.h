// Finds the one rank that adds other values than it recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/collective/sum_columns.h"

namespace plumbline::analysis {

struct ReplacedRank {
  int row = -1;  // of the inputs; -1 if none
  int32_t compared = 0;

  bool found() const { return row >= 0; }
};

// Returns what a rank might add at one element instead of its recorded value.
using OtherValue = std::function<double(int row, int32_t sample)>;

// Call if no candidate explains the results. The errors y - s must be closer to the difference x'_r
// - x_r of both values than to 0 on more elements than by chance (three deviations), and on at
// least 32; a replay with x'_r in place of x_r must give every result bit for bit, and the
// difference must be unlike that of every other rank (by a tenth, root mean square): sums over half
// of the ranks give the same results as a flipped sign if all values are equal.
ReplacedRank FindReplacedRank(const ReductionCase& c, const std::vector<SumColumn>& columns,
                              const OtherValue& other);

// The same for values that are subtracted instead of added.
ReplacedRank FindFlippedRank(const ReductionCase& c, const std::vector<SumColumn>& columns);

}  // namespace plumbline::analysis
