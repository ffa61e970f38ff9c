// Measures how well the scales of a block-scaled factor fit its stored values: range that a scale
// leaves unused, values that it clips, and blocks that it spends on a single value.
#pragma once

#include <cstdint>

#include "analysis/product/product.h"

namespace plumbline::analysis {

struct BlockFit {
  uint64_t blocks = 0;  // blocks with a non-zero value
  uint64_t values = 0;  // non-zero values
  // Blocks whose largest value is below a quarter of the format's, while a quarter of the other
  // values are below its smallest normal value. The scale is from another time, and bits were lost.
  // If no value is that small, two bits of range are unused, but nothing is lost.
  uint64_t stale = 0;
  // Blocks of at least eight values in which several, and at least a quarter of all, equal the
  // format's largest value, twice as many as equal the value below it. The scale is too small and
  // clips them. If values just fit, their number falls towards the largest.
  uint64_t clipped = 0;
  // Blocks of at least eight values in which only one is not zero. The others became zero, or were
  // zero.
  uint64_t spent = 0;

  double share(uint64_t of) const {
    return blocks > 0 ? static_cast<double>(of) / static_cast<double>(blocks) : 0;
  }
};

// Measures one factor's sampled rows. If it has no block scales, returns zeros.
BlockFit FitOfBlocks(const MatmulCase& c, bool of_a);

}  // namespace plumbline::analysis
