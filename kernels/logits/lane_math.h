// What a device lane's sums of logits are made of (lane.h): powers of two, fused products, the
// divergence of a pair.
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

// a b + c, rounded once: y is small where it matters, and its parts are not.
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

// As SmallDivergence, in f32 to a relative 1e-6: of (e^d - 1 - d), d^2/2 + d^4/24 leave out
// d^4 (1/24) (d^2/30) at most 5e-7 of it, d^3/6 + d^5/120 less.
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

}  // namespace internal

}  // namespace plumbline
