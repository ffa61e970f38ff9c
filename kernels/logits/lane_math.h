// Arithmetic of a device lane's sums of logits (lane.h): powers of two, fused products, the
// divergence of one pair and of many.
#pragma once

#include <cmath>

#include "kernels/core/device_code.h"
#include "kernels/logits/core.h"

namespace plumbline {
namespace internal {

PLUMB_HD inline float PowerOf2(float y) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(y));  // relative 2^-22
  return power;
#else
  return std::exp2(y);
#endif
}
PLUMB_HD inline double PowerOf2(double y) { return exp2(y); }

// Returns a b + c, rounded once: y may be small although its parts are large.
PLUMB_HD inline float Fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PLUMB_HD inline double Fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <typename Real>
PLUMB_HD inline Real LargerOf(Real a, Real b) {
#if defined(__CUDA_ARCH__)
  return sizeof(Real) == 4 ? static_cast<Real>(fmaxf(static_cast<float>(a), static_cast<float>(b)))
                           : static_cast<Real>(fmax(a, b));
#else
  return b > a ? b : a;
#endif
}
template <typename Real>
PLUMB_HD inline Real SmallerOf(Real a, Real b) {
  return -LargerOf(-a, -b);
}

// Computes SmallDivergence in f32 to a relative 1e-6: for (e^d - 1 - d), d^2/2 + d^4/24 leave out
// d^4 (1/24) (d^2/30), at most 5e-7 of it; d^3/6 + d^5/120 leave out less.
PLUMB_HD inline void LaneDivergence(float d, float* up, float* down) {
  const float q = d * d;
  const float even = q * (0.5f + q * static_cast<float>(1.0 / 24));
  const float odd = d * q;
  const float h = static_cast<float>(1.0 / 6) + q * static_cast<float>(1.0 / 120);
  *up = even + odd * h;
  *down = even - odd * h;
}
PLUMB_HD inline void LaneDivergence(double d, double* up, double* down) {
  SmallDivergence(d, up, down);
}

// Computes divergences from the moments m[n], sums of p d^n. e^-d - 1 + d and, with the other
// side's q = c p e^-d, q (e^d - 1 - d) = c p (1 - (1 + d) e^-d) are series in d. On |d| <= h their
// terms of d^5, d^6 and d^7 are replaced by the nearest lower terms: d^3 by 3/4 h^2 d, d^4 by h^2
// d^2 - h^4 / 8, times d^2. So the relative error of each is at most h^3 / 60 = 4e-5, with the sign
// of d. This is less than the rounding of d in a float.
PLUMB_HD inline double MomentsForward(const double* m) {
  constexpr double kSquare = kSmallDelta * kSmallDelta;
  constexpr double kEighth = kSquare * kSquare / 8;
  constexpr double kFifth = 1.0 / 120 + kSquare / 5040;
  return m[2] * (1.0 / 2 - kEighth / 720) -
         m[3] * (1.0 / 6 - kEighth / 5040 + 0.75 * kSquare * kFifth) +
         m[4] * (1.0 / 24 + kSquare / 720);
}
// The result is to be multiplied by c.
PLUMB_HD inline double MomentsBackward(const double* m) {
  constexpr double kSquare = kSmallDelta * kSmallDelta;
  constexpr double kEighth = kSquare * kSquare / 8;
  constexpr double kFifth = 1.0 / 30 + kSquare / 840;
  return m[2] * (1.0 / 2 - kEighth / 144) -
         m[3] * (1.0 / 3 - kEighth / 840 + 0.75 * kSquare * kFifth) +
         m[4] * (1.0 / 8 + kSquare / 144);
}

}  // namespace internal

}  // namespace plumbline
