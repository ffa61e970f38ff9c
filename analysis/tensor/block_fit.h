// How well the scales of a block-scaled factor fit its values, seen from the values as they are
// stored: what a scale leaves unused, what it clips, and what it spends on a single value.
#pragma once

#include <cstdint>

#include "analysis/product/product.h"

namespace plumbline::rules {

struct BlockFit {
  uint64_t blocks = 0;  // with a value that is not zero
  uint64_t values = 0;  // not zero
  // Blocks whose largest value is below a quarter of the format's while a quarter of the others are
  // below its least normal value: the scale is from another time, and bits were lost for it. (Where
  // none is, two bits of range are spent on nothing and missed by nobody.)
  uint64_t stale = 0;
  // Blocks of at least eight values of which several, and a quarter of all, are the format's
  // largest, twice as many as are the value below it: the scale is too small and cuts them. (What
  // just fits thins out towards its largest value.)
  uint64_t clipped = 0;
  // Blocks of at least eight in which one value alone is left beside zeros: what was not it, became
  // zero (or was).
  uint64_t spent = 0;

  double share(uint64_t of) const {
    return blocks > 0 ? static_cast<double>(of) / static_cast<double>(blocks) : 0;
  }
};

// Of one factor's sampled rows; nothing where it has no block scales.
BlockFit FitOfBlocks(const MatmulCase& c, bool of_a);

}  // namespace plumbline::rules
