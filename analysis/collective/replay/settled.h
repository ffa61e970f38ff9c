// Finds samples for which the order of the sum cannot matter. For a wide dtype, rounded once, the
// error bound of any order leaves only one result. For any dtype, no partial sum may be rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"

namespace plumbline::analysis {

struct SettledSamples {
  std::vector<int32_t> open;  // columns for which the order may matter
  int32_t tested = 0;         // number of columns for which the order does not matter
  // Number of tested columns with another output. After `enough` of them the rest is not tested.
  int32_t missed = 0;
  int32_t exact_tested = 0;  // counts of the exact sum, rounded once; 0 if it is not a candidate
  int32_t exact_missed = 0;
};

// Returns true if the exact sum is a candidate, because only the last step rounds.
bool ExactApplies(const Arithmetic& a);

// The |error| of a sum of N addends in any order is at most (N-1) u / (1 - (N-1) u) * sum |x|
// (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, 4.2), where u is half an ulp of
// 1 in the partial dtype.
SettledSamples Settle(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns,
                      int enough);

// Returns the number of columns that the exact sum, divided and rounded once, explains.
int32_t CountExact(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns);

}  // namespace plumbline::analysis
