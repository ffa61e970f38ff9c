// exp and log with the same bits on every host and device: additions, multiplications and one
// division in a fixed order, no fused operations (device code compiles with --fmad=false). The
// library functions of glibc and CUDA differ in the last bit, so a test for ties would differ too.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"

namespace plumbline {

namespace internal {

// Returns e^x for x in [-708, 709.7].
PLUMB_HD inline double ExpInRange(double x) {
  // x = n ln2 + r, |r| <= ln2/2; ln2 in two parts, the first with 21 trailing zero bits so that
  // n * kLn2High is exact.
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0.69314718036912382;
  constexpr double kLn2Low = 1.9082149292705877e-10;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double shifted = x * kLog2E + kRound;
  const double n = shifted - kRound;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor to r^13: the remainder is below 2^-57 of the sum.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = (p * r) * r + r;
  p = p + 1.0;
  // The low bits of `shifted` are n in two's complement; n + 1023 >= 1 here, and n = 1024 is split.
  const uint64_t bits = __builtin_bit_cast(uint64_t, shifted);
  const uint64_t half_scale = (bits - 1 + 1023) << 52;
  return p * __builtin_bit_cast(double, half_scale) * 2.0;
}

}  // namespace internal

// Returns e^x within 2 ulp for finite x; 0 below -708 (where f64 becomes subnormal), infinity above
// 709.7. Branch-free up to the selects at the end, so that loops over it vectorise. NaN gives NaN.
PLUMB_HD inline double PortableExp(double x) {
  const double bounded = x < -708.0 ? -708.0 : (x > 709.7 ? 709.7 : x);
  const double y = internal::ExpInRange(bounded);
  const double low = x < -708.0 ? 0.0 : y;
  return x > 709.7 ? __builtin_inf() : (x == x ? low : x);
}

// Returns PortableExp(x) for x <= 0, -inf included: the same bits, fewer selects.
PLUMB_HD inline double PortableExpNegative(double x) {
  const double y = internal::ExpInRange(x < -708.0 ? -708.0 : x);
  return x < -708.0 ? 0.0 : y;
}

// Returns ln x for positive normal x, within 2 ulp or 2^-56 absolute.
PLUMB_HD inline double PortableLog(double x) {
  constexpr double kLn2High = 0.69314718036912382;
  constexpr double kLn2Low = 1.9082149292705877e-10;
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int e = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++e;
  }
  // ln m = 2 artanh(s), s = (m-1)/(m+1), |s| < 0.172; the series to s^23.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double q = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) q = q * z + 1.0 / static_cast<double>(k);
  const double ln_m = 2.0 * s + 2.0 * (s * (z * q));
  return static_cast<double>(e) * kLn2High + (static_cast<double>(e) * kLn2Low + ln_m);
}

}  // namespace plumbline
