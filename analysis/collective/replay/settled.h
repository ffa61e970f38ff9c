// Samples where no order of the sum can matter: in a wide dtype, rounded once, because the error
// bound of a sum in any order leaves one result; in any dtype, because no partial sum is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"

namespace plumbline::rules {

struct SettledSamples {
  std::vector<int32_t> open;  // columns where the order may matter
  int32_t tested = 0;         // columns where it does not
  int32_t missed = 0;         // of these, the output is another; from `enough` on the rest is not
                              // looked at
  int32_t exact_tested = 0;   // of the exact sum, rounded once; 0: no candidate here
  int32_t exact_missed = 0;
};

// The exact sum is a candidate: nothing but the last rounding happens.
bool ExactApplies(const Arithmetic& a);

// |error| of a sum of N addends in any order is at most (N-1) u / (1 - (N-1) u) * sum |x| (Higham,
// "Accuracy and Stability of Numerical Algorithms", 2002, 4.2), u half an ulp of 1 in the partial
// dtype.
SettledSamples Settle(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns,
                      int enough);

// Columns that the exact sum, divided and rounded once, explains.
int32_t CountExact(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns);

}  // namespace plumbline::rules
