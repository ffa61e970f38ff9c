// Tests whether floating-point positions are a rounded count, and which positions the rounding made
// equal.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace plumbline::analysis {

// A stretch of one row in which values[begin + i] = round((start + i) * step) in `dtype` for all i.
struct CountedStretch {
  int64_t begin = 0, end = 0;
  double start = 0;
  double step = 1;
  DType dtype = DType::kUnspecified;
  int64_t distinct = 0;
  // First i with values[i] = values[i + 1], index in the row; -1 if there is none.
  int64_t collision = -1;

  int64_t length() const { return end - begin; }
};

struct PositionRow {
  std::vector<CountedStretch> stretches;  // stretches that a rounded count explains
  // True if some neighbours are equal and the dtype cannot represent both positions.
  bool repeats = false;
};

// Analyses the positions of one sequence, or of several sequences packed one after the other (if a
// value falls, a new one begins). A stretch is counted if its own values fix the count's start and
// step: they explain each value exactly, over at least four distinct ones. Padding (one repeated
// value) is left out. `dtype` is the coarsest that holds the values. `work` is the number of
// comparisons left. It is decremented; at 0 the remaining values are not analysed.
PositionRow LookAtPositions(const double* values, int64_t n, DType dtype, int64_t& work);

// Returns the number of comparisons for a tensor with this number of values: enough for any tensor
// of counted positions.
int64_t PositionWork(int64_t values);

}  // namespace plumbline::analysis
