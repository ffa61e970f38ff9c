// The sums of a row of logits/pair.h, shared by the CPU reference and the device, whose threads
// have separate f32 sums (lane.h). All sums can be merged, so a row may be divided among lanes.
//
// Sums of a side are kept relative to a reference m of its own, near its running maximum: y = z -
// m. Sums of both sides are over the common support, relative to one of its logits, the reference
// r: d = (z_pi - z_mu) minus its value at r, x = z_mu minus its value at r.
//
// KL(pi||mu) = E_pi[d] + l with l = d's reference + lse_mu - lse_pi, which loses all digits by
// cancellation if both are nearly equal. In that case it is computed as a sum of positive terms:
//   E_pi[e^-d - 1 + d] - (e^l - 1 - l),
// since E_pi[e^-d] = e^l. Each term is a polynomial for |d| <= 1/8. The reverse has d and l of the
// other sign.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/core/device_code.h"
#include "kernels/logits/pair.h"

namespace plumbline {

inline constexpr double kSmallDelta = 0.125;

PLUMB_HD inline double NoLogit() { return -__builtin_inf(); }

template <typename Real>
struct LogitSide {
  Real max = static_cast<Real>(-__builtin_inf());  // no finite logit yet
  Real s0 = 0, s1 = 0, s2 = 0;                     // e^y, e^y y, e^y y^2
  Real t1 = 0;                                     // e^y d
  Real k = 0;           // |d| <= 1/8: e^y (e^-d - 1 + d); of mu: e^y (e^d - 1 - d)
  Real l0 = 0, l1 = 0;  // |d| > 1/8: e^y, e^y d
  uint32_t finite = 0, exact = 0, faults = 0;
};

template <typename Real>
struct LogitSums {
  LogitSide<Real> side[2];
  Real x = 0, xx = 0, d = 0, dd = 0, xd = 0;
  Real max_d = static_cast<Real>(-__builtin_inf());
  Real min_d = static_cast<Real>(__builtin_inf());
  uint32_t common = 0;
  bool shared_top = false;  // one logit has the running maximum of both sides
};

struct LogitReference {
  double train = 0, rollout = 0;  // the logits at r
  bool set = false;
};

// Raises a side's running maximum to `max` >= side.max.
template <typename Real>
PLUMB_HD inline void RaiseMax(LogitSide<Real>* side, Real max) {
  if (!(max > side->max)) return;
  const Real down = side->max - max;  // -inf at the first logit: the sums are zero and stay zero
  side->max = max;
  const Real c = static_cast<Real>(exp(down));
  if (c == 0) {
    side->s0 = side->s1 = side->s2 = side->t1 = side->k = side->l0 = side->l1 = 0;
    return;
  }
  side->s2 = c * (side->s2 + down * (2 * side->s1 + down * side->s0));
  side->s1 = c * (side->s1 + down * side->s0);
  for (Real* sum : {&side->s0, &side->t1, &side->k, &side->l0, &side->l1}) *sum *= c;
}

// Computes e^d - 1 - d and e^-d - 1 + d for |d| <= 1/8, to a relative 3e-12.
template <typename Real>
PLUMB_HD inline void SmallDivergence(Real d, Real* up, Real* down) {
  const Real q = d * d;
  const Real even =
      q * (Real{0.5} + q * (Real{1.0 / 24} + q * (Real{1.0 / 720} + q * Real{1.0 / 40320})));
  const Real odd = d * q * (Real{1.0 / 6} + q * (Real{1.0 / 120} + q * Real{1.0 / 5040}));
  *up = even + odd;
  *down = even - odd;
}

// Returns true if the f32 value is a bf16 value.
PLUMB_HD inline bool IsBF16(float z) { return (__builtin_bit_cast(uint32_t, z) & 0xffffu) == 0; }

// The number of pairs that a device thread takes at a time.
inline constexpr int kLogitVector = 8;

// Adds the sums of other logits of the row, taken with the same reference.
PLUMB_HD inline void MergeLogits(LogitSums<double>* into, LogitSums<double> other) {
  bool mine = into->shared_top, theirs = other.shared_top;
  for (int s = 0; s < 2; ++s) {
    LogitSide<double>& a = into->side[s];
    LogitSide<double>& b = other.side[s];
    mine &= a.max >= b.max;
    theirs &= b.max >= a.max;
    const double max = a.max >= b.max ? a.max : b.max;
    RaiseMax(&a, max);
    RaiseMax(&b, max);
    a.s0 += b.s0;
    a.s1 += b.s1;
    a.s2 += b.s2;
    a.t1 += b.t1;
    a.k += b.k;
    a.l0 += b.l0;
    a.l1 += b.l1;
    a.finite += b.finite;
    a.exact += b.exact;
    a.faults += b.faults;
  }
  into->shared_top = mine || theirs;
  into->x += other.x;
  into->xx += other.xx;
  into->d += other.d;
  into->dd += other.dd;
  into->xd += other.xd;
  if (other.max_d > into->max_d) into->max_d = other.max_d;
  if (other.min_d < into->min_d) into->min_d = other.min_d;
  into->common += other.common;
}

// The largest logits of one side so far, largest first, equal ones by their place.
struct TopLogits {
  float value[kTopLogits];
  int32_t at[kTopLogits];
  int count = 0;

  PLUMB_HD bool Takes(float z) const { return count < kTopLogits || z >= value[kTopLogits - 1]; }
  // Inserts a finite logit; any order.
  PLUMB_HD void Insert(float z, int32_t place) {
    int i = count < kTopLogits ? count : kTopLogits - 1;
    if (count == kTopLogits && !Before(z, place, i)) return;
    for (; i > 0 && Before(z, place, i - 1); --i) {
      value[i] = value[i - 1];
      at[i] = at[i - 1];
    }
    value[i] = z;
    at[i] = place;
    if (count < kTopLogits) ++count;
  }

 private:
  PLUMB_HD bool Before(float z, int32_t place, int i) const {
    return z > value[i] || (z == value[i] && place < at[i]);
  }
};

PLUMB_HD inline int CommonLogits(const TopLogits& a, const TopLogits& b) {
  int common = 0;
  for (int i = 0; i < a.count; ++i) {
    for (int j = 0; j < b.count; ++j) common += a.at[i] == b.at[j] ? 1 : 0;
  }
  return common;
}

PLUMB_HD inline LogitRow EmptyLogitRow() {
  LogitRow row{};
  const double nan = __builtin_nan("");
  for (int s = 0; s < 2; ++s) {
    row.lse[s] = row.entropy[s] = row.varentropy[s] = row.lattice[s] = row.logprob[s] = nan;
  }
  row.kl_train_rollout = row.kl_rollout_train = row.max_abs_delta = nan;
  row.slope = row.intercept = row.fit_r2 = row.js = row.total_variation = nan;
  for (double& mean : row.downward) mean = nan;
  for (double& moment : row.log_moments) moment = nan;
  row.token = -1;
  return row;
}

namespace internal {

PLUMB_HD inline void FinishFit(const LogitSums<double>& s, const LogitReference& r, LogitRow* row) {
  const double n = s.common;
  const double x = s.x / n, d = s.d / n;
  const double xx = s.xx - s.x * x, xd = s.xd - s.x * d, dd = s.dd - s.d * d;
  if (s.common < 2 || !(xx > 0)) return;
  // Least squares of d on x: z_pi is x + d except constants, so its slope is larger by 1 and the
  // residuals are the same.
  const double tilt = xd / xx;
  row->slope = 1 + tilt;
  row->intercept = (r.train + x + d) - row->slope * (r.rollout + x);
  const double total = xx + 2 * xd + dd;
  if (total > 0) row->fit_r2 = 1 - (dd - tilt * xd) / total;
}

// Computes a divergence: `sign` 1: KL(pi||mu) from pi's sums; -1: the reverse. l as above, with
// that sign.
PLUMB_HD inline double FinishDivergence(const LogitSums<double>& s, int from, double l) {
  const LogitSide<double>& a = s.side[from];
  const LogitSide<double>& b = s.side[1 - from];
  const double sign = from == kTrain ? 1 : -1;
  if (a.finite > s.common) return __builtin_inf();
  const bool near = b.finite == s.common && l < 0.5 && l > -0.5;
  if (!near) return sign * (a.t1 / a.s0) + l;
  const double beyond = b.l0 / b.s0 * exp(l);  // E[e^-d] over |d| > 1/8
  const double terms = (a.k + sign * a.l1 - a.l0) / a.s0 + beyond;
  double up, down;
  if (l < kSmallDelta && l > -kSmallDelta) {
    SmallDivergence(l, &up, &down);
  } else {
    up = expm1(l) - l;
  }
  return terms - up;
}

}  // namespace internal

// Computes everything except tokens, top-k and details.
PLUMB_HD inline LogitRow FinishLogits(const LogitSums<double>& s, const LogitReference& r) {
  LogitRow row = EmptyLogitRow();
  row.common = s.common;
  for (int i = 0; i < 2; ++i) {
    const LogitSide<double>& a = s.side[i];
    row.finite[i] = a.finite;
    row.only[i] = a.finite - s.common;
    row.non_finite[i] = a.faults;
  }
  row.usable = s.common > 0 && s.side[0].faults == 0 && s.side[1].faults == 0;
  if (!row.usable) return row;
  for (int i = 0; i < 2; ++i) {
    const LogitSide<double>& a = s.side[i];
    const double mean = a.s1 / a.s0;
    row.lse[i] = a.max + log(a.s0);
    row.entropy[i] = log(a.s0) - mean;
    const double variance = a.s2 / a.s0 - mean * mean;
    row.varentropy[i] = variance > 0 ? variance : 0;  // only rounding makes it negative
    row.lattice[i] = static_cast<double>(a.exact) / a.finite;
  }
  row.top1_differs = !s.shared_top;
  const double l =
      (r.train - s.side[0].max) - (r.rollout - s.side[1].max) + log(s.side[1].s0 / s.side[0].s0);
  row.kl_train_rollout = internal::FinishDivergence(s, kTrain, l);
  row.kl_rollout_train = internal::FinishDivergence(s, kRollout, -l);
  const double mean = s.d / s.common;
  row.max_abs_delta = s.max_d - mean > mean - s.min_d ? s.max_d - mean : mean - s.min_d;
  internal::FinishFit(s, r, &row);
  return row;
}

// Returns the sum over k of u^k / (k (2k - 1)), to k = 12: (1+s)log(1+s) + (1-s)log(1-s) with u =
// s^2 up to 1/16.
template <typename Real, int k = 1>
PLUMB_HD inline Real EvenLogSeries(Real u) {
  constexpr Real kOver = Real{1} / static_cast<Real>(k * (2 * k - 1));
  if constexpr (k == 12) {
    return u * kOver;
  } else {
    return u * (kOver + EvenLogSeries<Real, k + 1>(u));
  }
}

}  // namespace plumbline
