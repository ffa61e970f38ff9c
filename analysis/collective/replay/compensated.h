// Computes compensated sums, which keep the loss of each addition in a second value of the same
// dtype. They are rivals of a wide accumulation, because on nearly every sample their result is the
// exact sum, rounded once.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"

namespace plumbline::analysis {

enum class Compensation : uint8_t {
  kKahan,     // the loss is subtracted from the next addend
  kNeumaier,  // losses are summed separately and added at the end
};

// Adds the ranks in order, from `start`, in `direction`.
struct CompensatedSum {
  Compensation method = Compensation::kKahan;
  int32_t start = 0;
  int32_t direction = 1;
  int32_t tested = 0;  // number of samples that were tested before it was abandoned
  int32_t missed = 0;

  std::string Words(DType dtype) const;  // "bf16 compensated sum (Kahan) from rank 0 up"
};

// Returns the number of compensated sums to try: from every start, in both directions, with both
// methods. If there are more than 64 ranks, starts only at the first and the last.
uint32_t CompensatedSums(int ranks);

// Returns the sum that fails in the fewest columns. Sums are in a.partial (rounded to nearest, no
// groups); inputs and results are converted as the arithmetic defines. Abandons a sum that has
// failed in `enough` columns. If all are abandoned, returns the one with the smallest share of
// failures.
CompensatedSum BestCompensatedSum(const ReductionCase& c, const Arithmetic& a,
                                  std::span<const int32_t> columns, int enough);

}  // namespace plumbline::analysis
