// Adds the lanes' sums to the exact sums of a tensor. Host and device; a Sink is that of
// tensor/tile.h, by value, because a sink whose address is taken would be in memory.
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/core/wide_sum.h"
#include "kernels/tensor/batch.h"

namespace plumbline {

// Adds v 2^exponent to one of the sums, a WideKind.
template <typename Sink>
PLUMB_DEVICE void GiveWide(Sink sink, int which, Int128 v, int exponent) {
  const bool negative = v < 0;
  if (v != 0) sink.Wide(which, static_cast<Uint128>(negative ? -v : v), exponent, negative);
}

// Adds a value that no lane's sum holds to all sums.
template <typename Sink>
PLUMB_CALLED void GiveValue(Sink sink, uint64_t significand, int exponent, bool negative) {
  if (significand == 0) return;
  const Uint128 wide = significand;
  sink.Wide(kWideSum, wide, exponent, negative);
  sink.Wide(kWideMagnitudes, wide, exponent, false);
  sink.Wide(kWideSquares, wide * wide, 2 * exponent, false);
}

}  // namespace plumbline
