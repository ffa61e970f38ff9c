// Samples for which the order of the sum cannot matter: in a wide dtype, rounded once, because the
// error bound of any order leaves one result; in any dtype, because no partial sum is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"

namespace plumbline::analysis {

struct SettledSamples {
  std::vector<int32_t> open;  // columns where the order may matter
  int32_t tested = 0;         // columns for which it does not
  // Tested columns with another output; after `enough` of them the rest is not tested.
  int32_t missed = 0;
  int32_t exact_tested = 0;  // of the exact sum, rounded once; 0 if it is no candidate here
  int32_t exact_missed = 0;
};

// Returns true if the exact sum is a candidate: only the last rounding happens.
bool ExactApplies(const Arithmetic& a);

// The |error| of a sum of N addends in any order is at most (N-1) u / (1 - (N-1) u) * sum |x|
// (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, 4.2), where u is half an ulp of
// 1 in the partial dtype.
SettledSamples Settle(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns,
                      int enough);

// Returns how many columns the exact sum, divided and rounded once, explains.
int32_t CountExact(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns);

}  // namespace plumbline::analysis
