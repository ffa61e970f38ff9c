// Finds two biased roundings around an accurate sum that no candidate of the replay has: inputs cut
// to 16 bits before an f32 sum, and results stored away from zero.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/collective/sum_columns.h"

namespace plumbline::analysis {

struct RoundingSlip {
  enum class Kind : uint8_t { kNone, kCutInputs, kStoredAway };
  Kind kind = Kind::kNone;
  DType dtype = DType::kUnspecified;  // to which the inputs are cut, or of the stored results
  int32_t compared = 0;
  int32_t decisive = 0;  // results that correct rounding would not give (kStoredAway: by chance)
  double bias = 0;       // mean relative error, weighted by size

  bool found() const { return kind != Kind::kNone; }
};

// Call if no candidate explains the results.
// kCutInputs: every result is within the f32 bound of the sum of the inputs, each cut toward zero
// to bf16 or fp16, and at least 32 are outside the bound of the sum of the inputs themselves, and
// of the inputs rounded to nearest.
// kStoredAway: every result is less than one ulp further from zero than its sum, and none of at
// least 32 different ones is closer to zero. An eighth of them is off by more than 3/4 ulp, which
// rounding to nearest never is, and an eighth by less than 1/4, as no factor would leave them.
// Rounding at random gives this with a probability of 2^-32.
// `columns`: of SumColumnsOf.
RoundingSlip FindRoundingSlip(const ReductionCase& c, const std::vector<SumColumn>& columns);

// Sums that saturated: beyond the largest finite value of the result's dtype, next to a finite
// result.
struct SaturatedSums {
  int32_t sample = -1;    // the one with the largest exact sum; -1 if there is none
  double exact = 0;       // its exact result
  double limit = 0;       // the largest finite value, which is its result
  int32_t saturated = 0;  // results at the limit whose exact value does not fit
  int32_t compared = 0;   // samples with finite inputs

  bool found() const { return sample >= 0; }
};

// A result y = ±limit whose exact value is beyond it, on the same side, has saturated. A factor or
// a clip after the sum must not be mistaken for it: either two such results have exact values that
// differ by more than 1 %, or at least eight results within the range are their sums (within a
// sixteenth of the sum of magnitudes).
SaturatedSums FindSaturated(const ReductionCase& c);

}  // namespace plumbline::analysis
