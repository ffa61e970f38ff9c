// Sums of the pairs of a row that one device thread takes, with as few operations per pair as
// possible. Tests run the same code on the host.
//
// Exponentials are kept in base 2 and relative to an integer, `unit`: with L = log2(e), a logit's y
// = z L - unit is one fused operation, and raising the unit scales sums by a power of two, exactly.
// s0, s1, s2 are the sums of 2^y, 2^y y and 2^y y^2; the others as in core.h.
//
// Eight pairs are a round. A round is ordinary if its logits are all finite and below 1e9: its sums
// need no branch. The sum of d^2 and x^2 shows this, because NaN, infinities and masks of -3e38
// make it large. If in addition all |d| <= 1/8, the pairs of f32 lanes add to the sums of 2^y d^n
// for n up to 4, y of the first side. Both divergences follow from these at the end, since the
// other side's 2^y is this one's times e^-d and a constant.
//
// Above 2^30 neighbouring floats are so far apart that the exponential of every smaller logit is
// zero, and no float is close enough to a unit. Then s0 counts the logits equal to the largest,
// `unit` exceeds all others, and the largest logit replaces it.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/logits/core.h"
#include "kernels/logits/lane_math.h"
#include "kernels/logits/lane_round.h"

namespace plumbline {

// `kExact`: bf16 represents every logit of that side exactly, so this is not tested.
template <typename Real>
class LogitLane {
 public:
  // Starts a side with a logit z that is known before its rounds, and raises the unit for this
  // logit at once.
  PLUMB_HD void Start(int s, float z) {
    if (z > -__builtin_inff() && !IsHuge(z)) RaiseUnit(s, z);
  }

  // Returns the largest logit of a side.
  PLUMB_HD Real top(int s) const {
    return internal::LargerOf(top_[s], static_cast<Real>(internal::LargerHalf(packed_top_[s])));
  }

  // Adds kLogitVector pairs; -inf on both sides if there are fewer. `most`: a PackedMost of them,
  // if they are bf16.
  template <bool kExactTrain = false, bool kExactRollout = false, typename Most = NotPacked>
  PLUMB_HD void Add(const float* train, const float* rollout, const LaneReference<Real>& r,
                    const Most& most = {}) {
    Real d[kLogitVector];
    Real sum_x = 0, sum_d = 0, xx = 0, dd = 0, xd = 0;
    PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
      // Subtracts the references first: this keeps the most bits of the difference in a float.
      const Real x = static_cast<Real>(rollout[i]) - r.rollout;
      d[i] = (static_cast<Real>(train[i]) - r.train) - x;
      sum_x = i == 0 ? x : sum_x + x;
      sum_d = i == 0 ? d[i] : sum_d + d[i];
      xx += x * x;
      dd = i == 0 ? d[i] * d[i] : dd + d[i] * d[i];
      xd += x * d[i];
    }
    internal::Keep(&sum_x);
    const bool ordinary = xx + dd < r.limit;
    if (static_cast<unsigned>(!ordinary) | static_cast<unsigned>(Above(train, rollout, most))) {
      if (!ordinary) {
        AddRest(train, rollout, r.whole());
        return;
      }
      Raise(0, train);
      Raise(1, rollout);
    }
    ++rounds_;
    x_ += sum_x;
    d_ += sum_d;
    xx_ += xx;
    dd_ += dd;
    xd_ += xd;
    if (!kExactTrain) side_[0].exact += kLogitVector - InexactOf(train);
    if (!kExactRollout) side_[1].exact += kLogitVector - InexactOf(rollout);
    const bool near = range_.Take(d, static_cast<Real>(kSmallDelta));
    if (near) {
      PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
        if constexpr (kMoments) {
          AddNear(train[i], rollout[i], d[i]);
        } else {
          AddOrdinary<true>(train[i], rollout[i], d[i]);
        }
      }
    } else {
      PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
        AddOrdinary<false>(train[i], rollout[i], d[i]);
      }
    }
  }

  // Adds fewer than eight pairs: the round is not ordinary.
  PLUMB_HD void AddRest(const float* train, const float* rollout, const LogitReference& r) {
    // Passes copies, because values whose address is taken are not in registers.
    Round round;
    PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) {
      round.z[0][i] = train[i];
      round.z[1][i] = rollout[i];
    }
    LogitLane copy = *this;
    AddAny(&copy, round, r);
    *this = copy;
  }

  // Returns the sums of core.h, except shared_top: on the kExact sides all finite logits count as
  // exact. `r`: as passed to Add.
  PLUMB_HD LogitSums<double> Sums(const LogitReference& r, bool exact_train = false,
                                  bool exact_rollout = false) const {
    LogitSums<double> sums;
    const uint32_t pairs = rounds_ * kLogitVector;
    for (int s = 0; s < 2; ++s) {
      const Side& from = side_[s];
      LogitSide<double>& to = sums.side[s];
      to.finite = from.finite + pairs;
      to.faults = from.faults;
      to.exact = (s == 0 ? exact_train : exact_rollout) ? to.finite : from.exact;
      if (to.finite == 0) continue;
      to.max = huge_[s] > 0 ? static_cast<double>(huge_[s]) : static_cast<double>(from.unit) * kLn2;
      to.s0 = from.s0;
      to.s1 = static_cast<double>(from.s1) * kLn2;
      to.s2 = static_cast<double>(from.s2) * (kLn2 * kLn2);
      to.t1 = from.t1;
      to.k = from.k;
      to.l0 = from.l0;
      to.l1 = from.l1;
    }
    AddMoments(r, &sums);
    sums.x = rest_.x + x_;
    sums.xx = rest_.xx + xx_;
    sums.d = rest_.d + d_;
    sums.dd = rest_.dd + dd_;
    sums.xd = rest_.xd + xd_;
    sums.max_d = rest_.max_d > range_.most() ? rest_.max_d : range_.most();
    sums.min_d = rest_.min_d < range_.least() ? rest_.min_d : range_.least();
    sums.common = common_ + pairs;
    return sums;
  }

 private:
  static constexpr bool kMoments = sizeof(Real) == 4;  // four are too few for f64
  static constexpr double kLog2E = 1.44269504088896340736, kLn2 = 0.69314718055994530942;
  static constexpr int kHeadroom = 2;

  struct Side {
    Real unit = static_cast<Real>(-1e38);      // none yet
    Real limit = static_cast<Real>(-3.38e38);  // logits up to it need no larger unit
    Real s0 = 0, s1 = 0, s2 = 0, t1 = 0, k = 0, l0 = 0, l1 = 0;
    uint32_t finite = 0, exact = 0, faults = 0;  // not of ordinary rounds
  };

  // The sums of pairs that are not ordinary, with any f32 logits.
  struct Rest {
    double x = 0, xx = 0, d = 0, dd = 0, xd = 0;
    double max_d = -__builtin_inf(), min_d = __builtin_inf();
  };

  PLUMB_HD static bool IsHuge(Real z) { return sizeof(Real) == 4 && z > Real{1 << 30}; }

  // Computes both divergences from the moments of near rounds.
  PLUMB_HD void AddMoments(const LogitReference& r, LogitSums<double>* sums) const {
    const double m[5] = {0, m1_, m2_, m3_, m4_};
    sums->side[0].t1 += m[1];
    if (!(m[2] > 0)) return;
    const double c = exp2(static_cast<double>(side_[0].unit) - static_cast<double>(side_[1].unit) -
                          (r.train - r.rollout) * kLog2E);
    sums->side[0].k += internal::MomentsForward(m);
    sums->side[1].k += c * internal::MomentsBackward(m);
  }

  PLUMB_HD static Real MostOf(const float* z) {
    Real most = static_cast<Real>(z[0]);
    PLUMB_UNROLL for (int i = 1; i < kLogitVector; ++i) {
      most = internal::LargerOf(most, static_cast<Real>(z[i]));
    }
    return most;
  }

  // Takes an ordinary round's largest logits; returns true if one of them is above its side's
  // limit.
  PLUMB_HD bool Above(const float* train, const float* rollout, NotPacked /*none*/) {
    const Real most[2] = {MostOf(train), MostOf(rollout)};
    for (int s = 0; s < 2; ++s) top_[s] = internal::LargerOf(top_[s], most[s]);
    return static_cast<unsigned>(most[0] > side_[0].limit) |
           static_cast<unsigned>(most[1] > side_[1].limit);
  }
  PLUMB_HD bool Above(const float* /*train*/, const float* /*rollout*/, const PackedMost& most) {
    bool above[2];
    for (int s = 0; s < 2; ++s) {
      packed_top_[s] = internal::LargerBF16(packed_top_[s], most.side[s]);
      above[s] = internal::LargerBF16(most.side[s], packed_limit_[s]) != packed_limit_[s];
    }
    return static_cast<unsigned>(above[0]) | static_cast<unsigned>(above[1]);
  }

  // Takes a side's largest logit, and raises the unit to at least that. -inf: none.
  PLUMB_HD void Raise(int s, const float* z) {
    const Real most = MostOf(z);
    Side& side = side_[s];
    if (IsHuge(most)) {
      if (!(most > huge_[s])) return;
      huge_[s] = top_[s] = most;
      Scale(s, 0);
      side.unit = side.limit = static_cast<Real>(3e38);
      return;
    }
    top_[s] = internal::LargerOf(top_[s], most);
    if (most > side.limit) RaiseUnit(s, most);
  }

  // Raises the unit to a little more than the largest so far: a warp waits for each lane that
  // raises.
  PLUMB_HD void RaiseUnit(int s, Real most) {
    Side& side = side_[s];
    const Real unit = ceil(most * static_cast<Real>(kLog2E)) + kHeadroom;
    if (!(unit > side.unit)) return;
    packed_limit_[s] = internal::BothBF16Below(static_cast<float>(unit * static_cast<Real>(kLn2)));
    side.limit = __builtin_bit_cast(float, packed_limit_[s] & 0xffff0000u);
    const Real down = side.unit - unit;
    side.unit = unit;
    if (side.s0 == 0) return;  // the other sums are 0 too
    const Real c = internal::PowerOf2(down);
    const Real s1 = side.s1;
    // If c is 0, `down` may be so large that products with it overflow.
    side.s2 = c == 0 ? c : c * (side.s2 + down * (2 * s1 + down * side.s0));
    side.s1 = c == 0 ? c : c * (s1 + down * side.s0);
    ScaleOthers(s, c);
  }

  PLUMB_HD void Scale(int s, Real c) {
    side_[s].s1 *= c;
    side_[s].s2 *= c;
    ScaleOthers(s, c);
  }
  PLUMB_HD void ScaleOthers(int s, Real c) {
    Side& side = side_[s];
    side.s0 *= c;
    side.t1 *= c;
    side.k *= c;
    side.l0 *= c;
    side.l1 *= c;
    if (s != 0) return;
    m1_ *= c;
    m2_ *= c;
    m3_ *= c;
    m4_ *= c;
  }

  // Returns the number of logits that bf16 does not represent: their lower halves, two by two, are
  // not zero.
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

  // Adds a finite logit's exponential.
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

  PLUMB_HD void AddNear(float a, float b, Real d) {
    const Real p = AddSide(0, a);
    side_[1].t1 += AddSide(1, b) * d;
    const Real dd = d * d;
    const Real pdd = p * dd;
    m1_ += p * d;
    m2_ += pdd;
    m3_ += pdd * d;
    m4_ += pdd * dd;
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

  // ---- rounds that are not ordinary ----------------------------------------------------------

  // Returns the logit, or -inf for a fault, and counts it.
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
    float z[2][kLogitVector];
    for (int s = 0; s < 2; ++s) {
      for (int i = 0; i < kLogitVector; ++i) z[s][i] = lane->Take(s, round.z[s][i]);
      lane->Raise(s, z[s]);
    }
    for (int i = 0; i < kLogitVector; ++i) lane->AddAnyPair(z[0][i], z[1][i], r);
  }

  PLUMB_HD void AddAnyPair(float a, float b, const LogitReference& r) {
    const Real p = AddAnySide(0, a);
    const Real q = AddAnySide(1, b);
    if (a == -__builtin_inff() || b == -__builtin_inff()) return;
    ++common_;
    const double x = static_cast<double>(b) - r.rollout;
    // Computed in double: the difference of a huge logit from the reference would otherwise lose
    // all bits.
    const double d = (static_cast<double>(a) - static_cast<double>(b)) - (r.train - r.rollout);
    rest_.x += x;
    rest_.xx += x * x;
    rest_.d += d;
    rest_.dd += d * d;
    rest_.xd += x * d;
    if (d > rest_.max_d) rest_.max_d = d;
    if (d < rest_.min_d) rest_.min_d = d;
    AddAnyDivergence(p, q, static_cast<Real>(d));
  }

  PLUMB_HD void AddAnyDivergence(Real p, Real q, Real d) {
    if (d <= static_cast<Real>(kSmallDelta) && d >= static_cast<Real>(-kSmallDelta)) {
      AddDivergence<true>(p, q, d);
      return;
    }
    // Beyond 1/8 a polynomial might overflow, and with huge logits d might overflow too.
    const Real zero = 0;
    const Real pd = p == zero ? zero : p * d, qd = q == zero ? zero : q * d;
    side_[0].t1 += pd;
    side_[1].t1 += qd;
    side_[0].l0 += p;
    side_[0].l1 += pd;
    side_[1].l0 += q;
    side_[1].l1 += qd;
  }

  // A logit of -3e38 is a mask: its exponential and the products are 0.
  PLUMB_HD Real AddAnySide(int s, float z) {
    Side& side = side_[s];
    if (z == -__builtin_inff()) return 0;
    if (huge_[s] > 0) {
      const Real equal = static_cast<Real>(z) == huge_[s] ? 1 : 0;
      side.s0 += equal;
      return equal;
    }
    const Real y = internal::Fused(static_cast<Real>(z), static_cast<Real>(kLog2E), -side.unit);
    return y < static_cast<Real>(-4000) ? static_cast<Real>(0) : AddSide(s, z);
  }

  Real top_[2] = {static_cast<Real>(-__builtin_inf()), static_cast<Real>(-__builtin_inf())};
  Real huge_[2] = {0, 0};  // the largest logit above 2^30; 0: none
  Side side_[2];
  Real m1_ = 0, m2_ = 0, m3_ = 0, m4_ = 0;         // of near rounds
  Real x_ = 0, xx_ = 0, d_ = 0, dd_ = 0, xd_ = 0;  // of ordinary rounds
  Rest rest_;
  internal::DeltaRange<Real> range_;  // of ordinary rounds
  // For bf16: the largest logits, in two parts; the limit, twice.
  uint32_t packed_top_[2] = {0xff80ff80u, 0xff80ff80u},
           packed_limit_[2] = {0xff7fff7fu, 0xff7fff7fu};
  uint32_t rounds_ = 0;  // ordinary ones
  uint32_t common_ = 0;  // pairs of others
};

}  // namespace plumbline
