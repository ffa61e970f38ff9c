// One element of an update check, and the lanes that add elements up: shared by host and device, so
// that both give the same bits. Plain additions and multiplications without fused operations; no
// branches, so that loops over lanes vectorise.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"

namespace plumbline {

// A block of consecutive elements is added up by kUpdateLanes lanes, element i on lane
// i % kUpdateLanes, in the order of i; then lanes pairwise (l and l + 16, 8, 4, 2, 1).
inline constexpr int kUpdateBlock = 4096;
inline constexpr int kUpdateLanes = 32;

// A sum in two doubles: high is the rounded sum, low the sum of the rounding errors (Ogita, Rump,
// Oishi, "Accurate sum and dot product", 2005).
struct PairSum {
  double high = 0;
  double low = 0;
};

// Adds x + rest, rest being small against x.
PLUMB_HD inline void AddTo(double x, double rest, PairSum* sum) {
  const double s = sum->high + x;
  const double part = s - sum->high;
  const double error = (sum->high - (s - part)) + (x - part);
  sum->high = s;
  sum->low += error + rest;
}

PLUMB_HD inline PairSum Joined(PairSum a, PairSum b) {
  const double s = a.high + b.high;
  const double part = s - a.high;
  const double error = (a.high - (s - part)) + (b.high - part);
  return {s, error + (a.low + b.low)};
}

enum UpdateSum { kIntendedL1, kAppliedL1, kLostL1, kAppliedAlong, kErrorSum, kUpdateSums };
enum UpdateCount { kNonFinite, kIntended, kLost, kMovedAgainst, kMisrounded, kUpdateCounts };

// How `before` and `after` round.
struct UpdateRounding {
  double unit_factor;  // 2^(1-p): times 2^floor(log2|x|) it is x's ulp
  double least_unit;   // of the subnormals
  double max_finite;
  bool f64;
};

PLUMB_HD constexpr UpdateRounding RoundingOf(DType t) {
  const FloatFormat f = FormatOf(t);
  return {PowerOfTwo(1 - f.precision), PowerOfTwo(f.min_exponent - f.precision + 1), f.max_finite,
          t == DType::kF64};
}

// What one element adds. Sums come as value and remainder.
struct UpdateTerms {
  double sum[kUpdateSums];
  double rest[kUpdateSums];
  uint64_t count[kUpdateCounts];
};

// before + intended, exactly: `nearest` + `rest`, and `odd`, the sum cut to 53 bits with its last
// bit set when anything was cut off, which rounds into any narrower format as the exact sum does
// (Boldo, Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
struct ExactUpdate {
  double nearest;
  double odd;
};

PLUMB_HD inline ExactUpdate ExactUpdateOf(double before, double intended) {
  const double s = before + intended;
  const double part = s - before;
  const double rest = (before - (s - part)) + (intended - part);
  auto bits = __builtin_bit_cast(uint64_t, s);
  const uint64_t same_sign = ((bits ^ __builtin_bit_cast(uint64_t, rest)) >> 63) ^ 1u;
  const uint64_t even = (bits & 1u) ^ 1u;
  const uint64_t cut = rest != 0 ? even : 0u;
  bits += cut * (2 * same_sign) - cut;  // one up, or one down when s was rounded away from zero
  return {s, __builtin_bit_cast(double, bits)};
}

// `same`: `after` has the bits of `before`.
PLUMB_HD inline UpdateTerms UpdateTermsOf(double before, double after, double intended, bool same,
                                          const UpdateRounding& rounding) {
  const double probe = (before - before) + (after - after) + (intended - intended);
  const bool finite = probe == 0;  // NaN otherwise
  const double b = finite ? before : 0.0;
  const double a = finite ? after : 0.0;
  const double d = finite ? intended : 0.0;

  const ExactUpdate s = ExactUpdateOf(b, d);
  const auto odd_bits = __builtin_bit_cast(uint64_t, s.odd);
  const double power = __builtin_bit_cast(double, odd_bits & 0x7ff0000000000000ull);
  const double scaled = power * rounding.unit_factor;
  const double unit = scaled > rounding.least_unit ? scaled : rounding.least_unit;
  // Adding 1.5 * 2^52 units rounds to whole units, ties to even.
  const double shifter = unit * 6755399441055744.0;
  const double near = (s.odd + shifter) - shifter;
  const bool beyond = !(AbsValue(near) <= rounding.max_finite);
  const double narrow = beyond ? __builtin_inf() : near;
  const double r = rounding.f64 ? s.nearest : narrow;
  const bool reachable = r - r == 0;
  const double error = (a - r) / unit;
  const double along = s.odd > 0 ? error : -error;
  const bool counts = reachable && s.odd != 0 && along - along == 0;

  // after - before, exactly: delta + delta_rest.
  const double delta = a - b;
  const double part = delta - a;
  const double delta_rest = (a - (delta - part)) - (b + part);
  const bool some = d != 0;
  const bool lost = some && same;
  const bool down = delta < 0;
  const bool against = d < 0;

  UpdateTerms t;
  t.sum[kIntendedL1] = AbsValue(d);
  t.rest[kIntendedL1] = 0;
  t.sum[kAppliedL1] = some ? AbsValue(delta) : 0.0;
  t.rest[kAppliedL1] = some ? (down ? -delta_rest : delta_rest) : 0.0;
  t.sum[kLostL1] = lost ? AbsValue(d) : 0.0;
  t.rest[kLostL1] = 0;
  t.sum[kAppliedAlong] = some ? (against ? -delta : delta) : 0.0;
  t.rest[kAppliedAlong] = some ? (against ? -delta_rest : delta_rest) : 0.0;
  t.sum[kErrorSum] = counts ? along : 0.0;
  t.rest[kErrorSum] = 0;
  t.count[kNonFinite] = finite ? 0u : 1u;
  t.count[kIntended] = some ? 1u : 0u;
  t.count[kLost] = lost ? 1u : 0u;
  t.count[kMovedAgainst] = some && delta != 0 && down != against ? 1u : 0u;
  t.count[kMisrounded] = a != r ? 1u : 0u;
  return t;
}

}  // namespace plumbline
