// Compensated sums: what each addition loses is kept in a second value of the same dtype. They are
// the rivals of a wide accumulation: their results are those of the exact sum, rounded once, on
// nearly every sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"

namespace plumbline::rules {

enum class Compensation : uint8_t {
  kKahan,     // the loss is taken from the next addend
  kNeumaier,  // losses are summed by themselves and added at the end
};

// One rank after the other in the order of the ranks, from `start`, in `direction`.
struct CompensatedSum {
  Compensation method = Compensation::kKahan;
  int32_t start = 0;
  int32_t direction = 1;
  int32_t tested = 0;  // samples, up to the last that was needed to give it up
  int32_t missed = 0;

  std::string Words(DType dtype) const;  // "bf16 compensated sum (Kahan) from rank 0 up"
};

// How many compensated sums are tried: from every start, both ways, both methods; of more than 64
// ranks from the first and the last alone.
uint32_t CompensatedSums(int ranks);

// The one that misses fewest of the columns. Sums are kept in a.partial (to nearest, no groups),
// entered and left as the arithmetic says. One is given up when it has missed `enough`; of those
// given up alone, the one with the smallest share.
CompensatedSum BestCompensatedSum(const ReductionCase& c, const Arithmetic& a,
                                  std::span<const int32_t> columns, int enough);

}  // namespace plumbline::rules
