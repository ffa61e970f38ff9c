// One element of an update check, and the sums over lanes: shared by host and device, so that both
// give the same bits. Plain additions and multiplications without fused operations; no branches, so
// that loops over lanes vectorise.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"

namespace plumbline {

namespace internal {

// Select by bits, so that compilers generate no branch.
PLUMB_HD constexpr uint64_t Flag(bool c) { return c ? 1u : 0u; }
PLUMB_HD constexpr uint64_t Mask(bool c, uint64_t v) { return v & (0 - Flag(c)); }
PLUMB_HD constexpr double Keep(bool c, double a) {
  return __builtin_bit_cast(double, Mask(c, __builtin_bit_cast(uint64_t, a)));
}
PLUMB_HD constexpr double Pick(bool c, double a, double b) {
  const uint64_t from_a = Mask(c, __builtin_bit_cast(uint64_t, a));
  return __builtin_bit_cast(double, from_a | Mask(!c, __builtin_bit_cast(uint64_t, b)));
}

}  // namespace internal

// A block of consecutive elements is added up by kUpdateLanes lanes, element i on lane i %
// kUpdateLanes, in the order of i; then lanes pairwise (l and l + 16, 8, 4, 2, 1).
inline constexpr int kUpdateBlock = 4096;
inline constexpr int kUpdateLanes = 32;

// A sum in two doubles: high is the rounded sum, low the sum of the rounding errors (Ogita, Rump,
// Oishi, "Accurate sum and dot product", 2005).
struct PairSum {
  double high = 0;
  double low = 0;
};

// Adds x + rest; rest is small compared with x.
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

// The rounding of `before` and `after`.
struct UpdateRounding {
  double unit_factor;  // 2^(1-p): multiplied by 2^floor(log2|x|), the ulp of x
  double least_unit;   // of the subnormals
  double max_finite;
  bool f64;
};

PLUMB_HD constexpr UpdateRounding RoundingOf(DType t) {
  const FloatFormat f = FormatOf(t);
  return {PowerOfTwo(1 - f.precision), PowerOfTwo(f.min_exponent - f.precision + 1), f.max_finite,
          t == DType::kF64};
}

// The terms of one element. Sums come as value and remainder.
struct UpdateTerms {
  double sum[kUpdateSums];
  double rest[kUpdateSums];
  uint64_t count[kUpdateCounts];
};

// before + intended, exactly: `nearest` + `rest`, and `odd`, the sum cut to 53 bits with its last
// bit set if anything was cut off, which rounds into any narrower format as the exact sum does
// (Boldo, Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
struct ExactUpdate {
  double nearest;
  double odd;
};

PLUMB_HD inline ExactUpdate ExactUpdateOf(double before, double intended) {
  const double s = before + intended;
  const double part = s - before;
  const double rest = (before - (s - part)) + (intended - part);
  const auto bits = __builtin_bit_cast(uint64_t, s);
  const uint64_t differ = (bits ^ __builtin_bit_cast(uint64_t, rest)) >> 63;
  const uint64_t even = ~bits & 1u;
  // If the last bit of s is 0: one up if s was cut, one down if it was rounded away from zero.
  const uint64_t step = even - 2 * (even & differ);
  const uint64_t odd = bits + internal::Mask(rest != 0, step);
  return {s, __builtin_bit_cast(double, odd)};
}

// `same`: 1 if `after` has the bits of `before`, else 0.
PLUMB_HD inline UpdateTerms UpdateTermsOf(double before, double after, double intended,
                                          uint64_t same, const UpdateRounding& rounding) {
  using internal::Flag;
  using internal::Keep;
  using internal::Pick;
  const double probe = (before - before) + (after - after) + (intended - intended);
  const bool finite = probe == 0;  // NaN otherwise
  const double b = Keep(finite, before);
  const double a = Keep(finite, after);
  const double d = Keep(finite, intended);

  const ExactUpdate s = ExactUpdateOf(b, d);
  const auto odd_bits = __builtin_bit_cast(uint64_t, s.odd);
  const double power = __builtin_bit_cast(double, odd_bits & 0x7ff0000000000000ull);
  const double scaled = power * rounding.unit_factor;
  const double unit = Pick(scaled > rounding.least_unit, scaled, rounding.least_unit);
  // Adding 1.5 * 2^52 units rounds to whole units, ties to even.
  const double shifter = unit * 6755399441055744.0;
  const double near = (s.odd + shifter) - shifter;
  const bool within = AbsValue(near) <= rounding.max_finite;
  const double narrow = Pick(within, near, __builtin_inf());
  const double r = Pick(rounding.f64, s.nearest, narrow);
  const double error = (a - r) / unit;
  const double along = Pick(s.odd > 0, error, -error);
  const bool counts = (r - r) + (along - along) == 0 && s.odd != 0;

  // after - before, exactly: delta + delta_rest.
  const double delta = a - b;
  const double part = delta - a;
  const double delta_rest = (a - (delta - part)) - (b + part);
  const bool some = d != 0;
  const bool down = delta < 0;
  const bool against = d < 0;
  const uint64_t intends = Flag(some);
  const double moved = Keep(some, delta);
  const double moved_rest = Keep(some, delta_rest);
  const double size = AbsValue(d);

  UpdateTerms t;
  t.sum[kIntendedL1] = size;
  t.rest[kIntendedL1] = 0;
  t.sum[kAppliedL1] = AbsValue(moved);
  t.rest[kAppliedL1] = Pick(down, -moved_rest, moved_rest);
  t.sum[kLostL1] = Keep((same & intends) != 0, size);
  t.rest[kLostL1] = 0;
  t.sum[kAppliedAlong] = Pick(against, -moved, moved);
  t.rest[kAppliedAlong] = Pick(against, -moved_rest, moved_rest);
  t.sum[kErrorSum] = Keep(counts, along);
  t.rest[kErrorSum] = 0;
  t.count[kNonFinite] = Flag(!finite);
  t.count[kIntended] = intends;
  t.count[kLost] = same & intends;
  t.count[kMovedAgainst] = intends & Flag(delta != 0) & (Flag(down) ^ Flag(against));
  t.count[kMisrounded] = Flag(a != r);
  return t;
}

}  // namespace plumbline
