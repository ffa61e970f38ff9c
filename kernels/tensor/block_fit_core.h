// The effect of a scale on one block of values: the arithmetic of block_fit.h, for host and device
// code. Exact in fp64 for values and scales of f32 and narrower, except the division by a scale
// that is no power of two, which is rounded once.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace plumbline {

// Figures of the non-zero finite magnitudes of one block.
struct BlockFacts {
  uint32_t values = 0;
  uint32_t flushed = 0;     // become 0
  uint32_t small = 0;       // below the least normal value, including the flushed ones
  uint32_t saturated = 0;   // beyond half a unit above the largest finite value
  uint32_t non_finite = 0;  // not included in the other figures
  double amax = 0, second = 0;
  double mass = 0, flushed_mass = 0;  // sums of magnitudes
  double cut_mass = 0;                // the part of saturated values beyond the largest
};

// Returns the largest magnitude that becomes 0: half of the least positive value (a tie goes to the
// even 0).
PLUMB_HD constexpr double FlushedUpTo(const FloatFormat& f) {
  return PowerOfTwo(f.min_exponent - f.precision);
}

// Returns half a unit above the largest finite value: beyond it a value saturates.
PLUMB_HD constexpr double SaturatesBeyond(const FloatFormat& f) {
  return f.max_finite + PowerOfTwo(f.max_exponent - f.precision);
}

PLUMB_HD constexpr void TakeMagnitude(double x, BlockFacts* block) {
  if (!IsFiniteValue(x)) {
    ++block->non_finite;
    return;
  }
  const double a = AbsValue(x);
  if (a == 0) return;
  ++block->values;
  block->mass += a;
  if (a > block->amax) {
    block->second = block->amax;
    block->amax = a;
  } else if (a > block->second) {
    block->second = a;
  }
}

// Takes a value of the block, at `scale` > 0: x / scale is stored.
PLUMB_HD constexpr void TakeStored(double x, double scale, const FloatFormat& f,
                                   BlockFacts* block) {
  if (!IsFiniteValue(x) || x == 0) return;
  const double a = AbsValue(x), stored = a / scale;
  if (stored < PowerOfTwo(f.min_exponent)) ++block->small;
  if (!(stored > FlushedUpTo(f))) {
    ++block->flushed;
    block->flushed_mass += a;
  } else if (stored > SaturatesBeyond(f)) {
    ++block->saturated;
    block->cut_mass += a - f.max_finite * scale;
  }
}

}  // namespace plumbline
