// Finds sums that saturate: stored as the largest finite value of their dtype, not as Inf.
#pragma once

#include <cstdint>

#include "analysis/collective/case/case.h"

namespace plumbline::analysis {

struct SaturatedSums {
  int32_t sample = -1;  // the saturated sample with the largest exact sum; -1 if no sum saturates
  double exact = 0;     // its exact sum, before a division
  double limit = 0;     // 65,504
  // Magnitude of its result: the limit, or the divided limit if sums are divided.
  double level = 0;
  int32_t saturated = 0;  // number of results at the level whose exact sum is beyond the limit
  int32_t compared = 0;   // number of samples with finite inputs

  bool found() const { return sample >= 0; }
};

// Tests only fp16, because 8-bit formats saturate by design, and bf16 has the range of f32. A sum
// is beyond the limit if it exceeds it by more than the error of any order of additions: (N + 4)
// 2^(1 - p) sum|x|. Because no partial sum exceeds the limit, this error is at most (N + 4)
// ulp(limit).
//
// Returns sums only under three conditions. No result is Inf or NaN. Every sum beyond the limit is
// stored as the limit, or below it by at most its addends of the other sign, because partial sums
// saturated. Every sum that cannot saturate equals its result. At least eight such sums, or three
// saturated sums that differ by 1 %, exclude a factor or a clip after the sum. `postscale` is 1 if
// none is declared.
SaturatedSums FindSaturated(const ReductionCase& c, double postscale);

}  // namespace plumbline::analysis
