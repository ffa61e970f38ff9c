// Floating positions: are they a count that was rounded, and which positions did the rounding make
// one?
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace plumbline::rules {

// A stretch of one row in which values[begin + i] = round((start + i) * step) in `dtype`
// throughout.
struct CountedStretch {
  int64_t begin = 0, end = 0;
  double start = 0;
  double step = 1;
  DType dtype = DType::kUnspecified;
  int64_t distinct = 0;
  int64_t collision = -1;  // first i with values[i] = values[i + 1], absolute; -1: none

  int64_t length() const { return end - begin; }
};

struct PositionRow {
  std::vector<CountedStretch> stretches;  // those that a rounded count explains
  bool repeats = false;  // some neighbours are equal where the dtype does not tell positions apart
};

// Positions of one sequence, or of several packed one behind the other (a value that falls begins
// anew). A stretch is counted when the count's start and step are fixed by its own values: they
// explain each value to the bit, over at least four distinct ones. Padding (one value repeated) is
// left out. `dtype`: the coarsest that holds the values. `work`: comparisons that may still be
// made; counted down, and at 0 the rest is not looked at.
PositionRow LookAtPositions(const double* values, int64_t n, DType dtype, int64_t& work);

// The comparisons that a tensor of so many values is worth: enough for any that counts.
int64_t PositionWork(int64_t values);

}  // namespace plumbline::rules
