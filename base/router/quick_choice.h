// The choice of a row without its values: the same experts and ties as ChooseExperts, with
// exponentials only if they decide.
#pragma once

#include <cstdint>

#include "base/router/scores.h"

namespace plumbline {

namespace internal {

enum class Gap : uint8_t { kTied, kApart, kUnsure };

// Tests whether the softmax values of two recorded values a >= b are apart, from d = a - b if that
// is certain. With f_b = f_a e^-d the margin is f_a (1 - e^-d), between f_a (d - d^2/2) and f_a d.
// The tolerance lies between f_a (delta_a + max_delta) and that of the larger delta plus f_a 2^-22,
// as long as f_a is a normal f32. Rounding of either in double is far below 2^-22 f_a.
inline Gap SoftmaxGap(const RouterRule& rule, const RowScale& row, double a, double b) {
  const double d = a - b;
  const double delta_a = RecordedDelta(a, rule.dtype);
  const double delta_b = RecordedDelta(b, rule.dtype);
  if (d <= delta_a + row.max_delta) return Gap::kTied;
  const double least = d < 1.0 ? d - 0.5 * d * d : 0.5;
  const double most = (delta_a > delta_b ? delta_a : delta_b) + row.max_delta;
  // e^-70 / kMaxExperts > 2^-126
  const bool normal = a - row.max > -70.0;
  return normal && least > most * (1.0 + 0x1p-20) + 0x1p-21 ? Gap::kApart : Gap::kUnsure;
}

// Sets `tied` and `rank_order_known` of a ranked softmax row; returns false if only its values can
// decide.
inline bool JudgeBySoftmaxGaps(const RouterRule& rule, const RowScale& row, const double* x,
                               RouterChoice* out) {
  bool known = true;
  bool tied = false;
  for (int n = 0; n + 1 < out->ranked; ++n) {
    const Gap gap = SoftmaxGap(rule, row, x[out->expert[n]], x[out->expert[n + 1]]);
    if (gap == Gap::kUnsure) return false;
    if (n + 1 == out->count) {
      tied = gap == Gap::kTied;
    } else {
      known = known && gap == Gap::kApart;
    }
  }
  out->tied = tied;
  out->rank_order_known = known;
  return true;
}

}  // namespace internal

// Sets `finite`, `tied`, `rank_order_known`, `count`, `ranked` and `expert` as ChooseExperts does,
// but not the values and margins. Exponentials are computed only if they decide.
inline void ChooseOnly(const RouterRule& rule, const double* x, const double* bias,
                       RouterScratch* scratch, RouterChoice* out) {
  RowScale row = ScanRow(rule, x);
  const bool softmax = rule.function == ScoreFunction::kSoftmax;
  if (row.finite && softmax && !rule.ranks_recorded()) SumRow(rule, x, scratch, &row);
  bool group_tied = false;
  if (!RankExperts(rule, row, x, bias, scratch, &group_tied, out)) return;
  if (softmax && rule.ranks_recorded()) {
    if (internal::JudgeBySoftmaxGaps(rule, row, x, out)) return;
    SumRow(rule, x, scratch, &row);
  }
  JudgeRanks(rule, row, x, bias, *scratch, group_tied, out);
}

}  // namespace plumbline
