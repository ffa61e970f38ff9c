// Finds sums of inputs that were cut to 16 bits (toward zero) before the collective.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/collective/sum_columns.h"

namespace plumbline::analysis {

struct CutInputs {
  DType to = DType::kUnspecified;
  int32_t compared = 0, differ = 0;  // elements, and those whose sum the cut changes
  double bias = 0;                   // relative, of the results

  bool found() const { return to != DType::kUnspecified; }
};

// Call if no candidate explains the results of f32 inputs. A replay with the cut inputs must give
// every result bit for bit, and the cut must change at least 32 distinct sums by more than twice
// the rounding of a result, in ways that no common factor has.
CutInputs FindCutInputs(const ReductionCase& c, const std::vector<SumColumn>& columns);

}  // namespace plumbline::analysis
