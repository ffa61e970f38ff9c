// Formats of block-scaled tensors (OCP Microscaling 1.0; NVFP4): elements that are too narrow for a
// DType, and the scales of their blocks. Header only.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/half.h"

namespace plumbline {

// e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinity, no NaN.
inline constexpr FloatFormat kE2M1 = {2, 0, 2, 6.0};

// Returns the value of the low four bits.
inline double E2M1Value(uint8_t code) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = kValues[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// e8m0: 2^(code - 127); 255 is NaN. No sign, no zero.
inline double E8M0Value(uint8_t code) {
  return code == 255 ? std::numeric_limits<double>::quiet_NaN() : PowerOfTwo(code - 127);
}

// Returns true if x is a value of the format: its bits fit into the significand, and its exponent
// is neither below the least normal one nor beyond the largest finite value.
inline bool IsValueOf(const FloatFormat& f, double x) {
  if (x == 0) return true;
  if (!std::isfinite(x) || std::fabs(x) > f.max_finite) return false;
  const int e = std::ilogb(x) > f.min_exponent ? std::ilogb(x) : f.min_exponent;
  const double q = std::ldexp(x, f.precision - 1 - e);
  return q == std::nearbyint(q);
}

}  // namespace plumbline
