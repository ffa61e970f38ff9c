// Sums of two values rounded once, as an exact adder would.
#pragma once

#include <cmath>
#include <limits>

#include "base/half.h"

namespace plumbline::analysis {

// Returns a + b rounded once to nearest even in `t`, for doubles a and b. The double sum is itself
// rounded. If it then lies midway between two values of `t`, the lost part decides.
inline double RoundedSum(double a, double b, DType t) {
  const double s = a + b;
  if (t == DType::kF64 || !std::isfinite(s)) return RoundToFormat(s, t);
  // TwoSum (Knuth): s + lost = a + b exactly.
  const double from_b = s - a;
  const double lost = (a - (s - from_b)) + (b - from_b);
  if (lost == 0) return RoundToFormat(s, t);
  const double towards =
      lost > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  const double nudged = RoundToFormat(std::nextafter(s, towards), t);
  const double plain = RoundToFormat(s, t);
  const bool midway = std::abs(s - plain) == 0.5 * UlpOf(s, t);
  return midway ? nudged : plain;
}

}  // namespace plumbline::analysis
