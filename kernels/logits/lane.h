// The pairs of a row that one device thread takes: its sums, in as few operations a pair as they
// can be had. Tests run the same text on the host.
//
// Exponentials are kept in base 2 and relative to an integer, `unit`: with L = log2(e), a logit's
// y = z L - unit is one fused operation, and raising the unit scales sums by a power of two,
// exactly. s0, s1, s2 are the sums of 2^y, 2^y y and 2^y y^2; the others as in core.h.
//
// Eight pairs at a time are a round. One whose logits are all finite and below 1e15 is ordinary:
// its sums need no branch. The sum of d^2, x^2 and the squares of the reference tells, which NaN,
// infinities and masks of -3e38 do not leave small.
// Where all |d| <= 1/8 besides, each pair takes the polynomial and nothing else.
#pragma once

#include <cmath>
#include <cstdint>

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

// `kExact`: bf16 holds every logit of that side exactly, so they need no look.
template <typename Real>
class LogitLane {
 public:
  Real top[2] = {static_cast<Real>(-__builtin_inf()),
                 static_cast<Real>(-__builtin_inf())};  // the largest logit of each side

  // Takes kLogitVector pairs; -inf on both sides where there are fewer.
  template <bool kExactTrain = false, bool kExactRollout = false>
  PLUMB_HD void Add(const float* train, const float* rollout, const LogitReference& r) {
    const Real from[2] = {static_cast<Real>(r.train), static_cast<Real>(r.rollout)};
    Real d[kLogitVector];
    Real sum_x = 0, sum_d = 0, xx = 0, dd = 0, xd = 0;
    PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
      // Each less its reference first: what a float keeps of the difference is then the most.
      const Real x = static_cast<Real>(rollout[i]) - from[1];
      d[i] = (static_cast<Real>(train[i]) - from[0]) - x;
      sum_x += x;
      sum_d += d[i];
      xx += x * x;
      dd += d[i] * d[i];
      xd += x * d[i];
    }
    const Real all = (xx + dd) + (from[0] * from[0] + from[1] * from[1]);
    if (!(all < static_cast<Real>(kHuge))) {
      AddRest(train, rollout, r);
      return;
    }
    Raise(0, train);
    Raise(1, rollout);
    Real most = d[0], least = d[0];
    PLUMB_UNROLL for (int i = 1; i < kLogitVector; ++i) {
      most = internal::LargerOf(most, d[i]);
      least = internal::SmallerOf(least, d[i]);
    }
    ++rounds_;
    x_ += sum_x;
    d_ += sum_d;
    xx_ += xx;
    dd_ += dd;
    xd_ += xd;
    max_d_ = internal::LargerOf(max_d_, most);
    min_d_ = internal::SmallerOf(min_d_, least);
    if (!kExactTrain) side_[0].exact += kLogitVector - InexactOf(train);
    if (!kExactRollout) side_[1].exact += kLogitVector - InexactOf(rollout);
    const bool near =
        most <= static_cast<Real>(kSmallDelta) && least >= static_cast<Real>(-kSmallDelta);
    if (near) {
      PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
        AddOrdinary<true>(train[i], rollout[i], d[i]);
      }
    } else {
      PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
        AddOrdinary<false>(train[i], rollout[i], d[i]);
      }
    }
  }

  // The same where there are fewer than eight: the round is not ordinary.
  PLUMB_HD void AddRest(const float* train, const float* rollout, const LogitReference& r) {
    // Called, with copies: what has an address does not lie in registers.
    Round round;
    PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
      round.z[0][i] = train[i];
      round.z[1][i] = rollout[i];
    }
    LogitLane copy = *this;
    AddAny(&copy, round, r);
    *this = copy;
  }

  // The sums of core.h, but for shared_top: of the kExact sides all finite logits count as exact.
  PLUMB_HD LogitSums<double> Sums(bool exact_train = false, bool exact_rollout = false) const {
    constexpr double kLn2 = 0.69314718055994530942;
    LogitSums<double> sums;
    const uint32_t pairs = rounds_ * kLogitVector;
    for (int s = 0; s < 2; ++s) {
      const Side& from = side_[s];
      LogitSide<double>& to = sums.side[s];
      to.finite = from.finite + pairs;
      to.faults = from.faults;
      to.exact = (s == 0 ? exact_train : exact_rollout) ? to.finite : from.exact;
      if (to.finite == 0) continue;
      to.max = static_cast<double>(from.unit) * kLn2;
      to.s0 = from.s0;
      to.s1 = static_cast<double>(from.s1) * kLn2;
      to.s2 = static_cast<double>(from.s2) * (kLn2 * kLn2);
      to.t1 = from.t1;
      to.k = from.k;
      to.l0 = from.l0;
      to.l1 = from.l1;
    }
    sums.x = x_;
    sums.xx = xx_;
    sums.d = d_;
    sums.dd = dd_;
    sums.xd = xd_;
    sums.max_d = max_d_;
    sums.min_d = min_d_;
    sums.common = common_ + pairs;
    return sums;
  }

 private:
  static constexpr double kHuge = 1e30;
  static constexpr double kLog2E = 1.44269504088896340736;

  struct Side {
    Real unit = static_cast<Real>(-1e38);  // none yet
    Real s0 = 0, s1 = 0, s2 = 0, t1 = 0, k = 0, l0 = 0, l1 = 0;
    uint32_t finite = 0, exact = 0, faults = 0;  // beside those of ordinary rounds
  };

  // Raises a side's largest logit, and its unit to no less than that. -inf: none.
  PLUMB_HD void Raise(int s, const float* z) {
    Real most = static_cast<Real>(z[0]);
    PLUMB_UNROLL for (int i = 1; i < kLogitVector; ++i) {
      most = internal::LargerOf(most, static_cast<Real>(z[i]));
    }
    if (!(most > top[s])) return;
    top[s] = most;
    Side& side = side_[s];
    const Real unit = ceil(most * static_cast<Real>(kLog2E));
    if (!(unit > side.unit)) return;
    const Real down = side.unit - unit;
    side.unit = unit;
    if (side.s0 == 0) return;  // so are the others
    const Real c = internal::PowerOf2(down);
    const Real s1 = side.s1;
    // Where nothing is left of the sums, down may be too large for products with it.
    side.s2 = c == 0 ? c : c * (side.s2 + down * (2 * s1 + down * side.s0));
    side.s1 = c == 0 ? c : c * (s1 + down * side.s0);
    side.s0 *= c;
    side.t1 *= c;
    side.k *= c;
    side.l0 *= c;
    side.l1 *= c;
  }

  // How many of them bf16 does not hold: their lower halves, two by two, are not zero.
  PLUMB_HD static uint32_t InexactOf(const float* z) {
    uint32_t found = 0;
    PLUMB_UNROLL for (int i = 0; i < kLogitVector; i += 2) {
#if defined(__CUDA_ARCH__)
      const uint32_t both = __byte_perm(__float_as_uint(z[i]), __float_as_uint(z[i + 1]), 0x5410);
      found += __vminu2(both, 0x00010001u);
#else
      found += (IsBF16(z[i]) ? 0u : 1u) + (IsBF16(z[i + 1]) ? 0u : 0x10000u);
#endif
    }
    return (found & 0xffffu) + (found >> 16);
  }

  // A finite logit's exponential, added.
  PLUMB_HD Real AddSide(int s, float z) {
    Side& side = side_[s];
    const Real y = internal::Fused(static_cast<Real>(z), static_cast<Real>(kLog2E), -side.unit);
    const Real e = internal::PowerOf2(y);
    const Real ey = e * y;
    side.s0 += e;
    side.s1 += ey;
    side.s2 += ey * y;
    return e;
  }

  template <bool kNear>
  PLUMB_HD void AddOrdinary(float a, float b, Real d) {
    const Real p = AddSide(0, a);
    const Real q = AddSide(1, b);
    AddDivergence<kNear>(p, q, d);
  }

  template <bool kNear>
  PLUMB_HD void AddDivergence(Real p, Real q, Real d) {
    const bool near =
        kNear || (d <= static_cast<Real>(kSmallDelta) && d >= static_cast<Real>(-kSmallDelta));
    const Real pd = p * d, qd = q * d;
    side_[0].t1 += pd;
    side_[1].t1 += qd;
    Real up, down;
    internal::LaneDivergence(d, &up, &down);
    const Real zero = 0;
    side_[0].k += near ? p * down : zero;
    side_[1].k += near ? q * up : zero;
    if (kNear) return;
    side_[0].l0 += near ? zero : p;
    side_[0].l1 += near ? zero : pd;
    side_[1].l0 += near ? zero : q;
    side_[1].l1 += near ? zero : qd;
  }

  // ---- what is not ordinary ----

  // The logit, or -inf for a fault; counts.
  PLUMB_HD float Take(int s, float z) {
    Side& side = side_[s];
    if (!(z < __builtin_inff())) {
      ++side.faults;
      return -__builtin_inff();
    }
    if (z == -__builtin_inff()) return z;
    ++side.finite;
    side.exact += IsBF16(z) ? 1 : 0;
    return z;
  }

  struct Round {
    float z[2][kLogitVector];
  };

  PLUMB_HD_CALLED static void AddAny(LogitLane* lane, const Round& round, const LogitReference& r) {
    const Real from[2] = {static_cast<Real>(r.train), static_cast<Real>(r.rollout)};
    float z[2][kLogitVector];
    for (int s = 0; s < 2; ++s) {
      for (int i = 0; i < kLogitVector; ++i) z[s][i] = lane->Take(s, round.z[s][i]);
      lane->Raise(s, z[s]);
    }
    for (int i = 0; i < kLogitVector; ++i) lane->AddAnyPair(z[0][i], z[1][i], from);
  }

  PLUMB_HD void AddAnyPair(float a, float b, const Real* from) {
    const Real p = AddAnySide(0, a);
    const Real q = AddAnySide(1, b);
    if (a == -__builtin_inff() || b == -__builtin_inff()) return;
    ++common_;
    const Real x = static_cast<Real>(b) - from[1];
    const Real d = (static_cast<Real>(a) - from[0]) - x;
    x_ += x;
    xx_ += x * x;
    d_ += d;
    dd_ += d * d;
    xd_ += x * d;
    if (d > max_d_) max_d_ = d;
    if (d < min_d_) min_d_ = d;
    AddAnyDivergence(p, q, d);
  }

  PLUMB_HD void AddAnyDivergence(Real p, Real q, Real d) {
    if (d <= static_cast<Real>(kSmallDelta) && d >= static_cast<Real>(-kSmallDelta)) {
      AddDivergence<true>(p, q, d);
      return;
    }
    const Real pd = p * d, qd = q * d;  // beyond 1/8 a polynomial might overflow
    side_[0].t1 += pd;
    side_[1].t1 += qd;
    side_[0].l0 += p;
    side_[0].l1 += pd;
    side_[1].l0 += q;
    side_[1].l1 += qd;
  }

  // A logit of -3e38 is a mask that somebody wrote: its exponential is 0, and so are the products.
  PLUMB_HD Real AddAnySide(int s, float z) {
    const Side& side = side_[s];
    if (z == -__builtin_inff()) return 0;
    const Real y = internal::Fused(static_cast<Real>(z), static_cast<Real>(kLog2E), -side.unit);
    return y < static_cast<Real>(-4000) ? static_cast<Real>(0) : AddSide(s, z);
  }

  Side side_[2];
  Real x_ = 0, xx_ = 0, d_ = 0, dd_ = 0, xd_ = 0;
  Real max_d_ = static_cast<Real>(-__builtin_inf());
  Real min_d_ = static_cast<Real>(__builtin_inf());
  uint32_t rounds_ = 0;  // ordinary ones
  uint32_t common_ = 0;  // pairs of others
};

}  // namespace plumbline
