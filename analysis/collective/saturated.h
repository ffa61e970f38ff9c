// Finds sums that saturate: stored as the largest finite value of their dtype, not as Inf.
#pragma once

#include <cstdint>

#include "analysis/collective/case/case.h"

namespace plumbline::analysis {

struct SaturatedSums {
  int32_t sample = -1;    // the one with the largest exact sum; -1 if no sum saturates
  double exact = 0;       // its exact sum, before a division
  double limit = 0;       // 65,504
  double level = 0;       // the magnitude of its result: the limit, divided if the sum is
  int32_t saturated = 0;  // results at the level whose exact sum is beyond the limit
  int32_t compared = 0;   // samples with finite inputs

  bool found() const { return sample >= 0; }
};

// fp16 only: 8-bit formats saturate by design, and bf16 ends where f32 does. A sum is beyond the
// limit if it exceeds it by more than the error of any order of additions: (N + 4) 2^(1 - p)
// sum|x|, and, as no partial sum exceeds the limit, at most (N + 4) ulp(limit).
//
// Returns sums only if no result is Inf or NaN, every sum beyond the limit is stored at it (or
// below it, by no more than its addends of the other sign: partial sums saturated), and every sum
// that cannot saturate is its result. At least eight of the latter, or three saturated sums that
// differ by 1 %, exclude a factor or a clip after the sum. `postscale` is 1 if none is declared.
SaturatedSums FindSaturated(const ReductionCase& c, double postscale);

}  // namespace plumbline::analysis
