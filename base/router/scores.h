// One row of a router on the host: the choice of its own scores. base/router/rule.h has the
// definition; the device form is kernels/routing/choice.h.
#pragma once

#include <cstdint>

#include "base/router/rule.h"
#include "base/router/select.h"

namespace plumbline {

// The choice of a row's own scores.
struct RouterChoice {
  bool finite = false;            // false: no choice, the members below are not set
  bool tied = false;              // the recorded precision does not determine the chosen set
  bool rank_order_known = false;  // each chosen one is certainly above the next
  int count = 0;                  // chosen: top_k
  int ranked = 0;                 // number of entries of the arrays: count, or count + 1 with the
                                  // best one that was not chosen
  double margin = 0;        // k-th minus (k+1)-th selection value; infinite when all are chosen
  double group_margin = 0;  // last admitted minus first refused group; infinite without a limit
  double best_margin = 0;   // first minus second; NaN if only one can be chosen
  int32_t expert[kMaxTopK + 1];  // in rank order
  double value[kMaxTopK + 1];    // selection values, in rank order
};

// Working memory of one row; about 26 KiB. Reused between rows, one per thread.
struct RouterScratch {
  double exponential[kMaxExperts];  // exp(x - max)
  double score[kMaxExperts];        // f(x); set only if the selection needs it for every expert
  double value[kMaxExperts];        // s
  double group[kMaxExperts];
  double group_tolerance[kMaxExperts];
  int32_t admitted[kMaxExperts];  // experts of admitted groups, ascending
  double admitted_key[kMaxExperts];
  double hint = 0;  // see SelectBest
};

namespace internal {

// Returns the sum over the lanes in the order of a warp's butterfly.
inline double SumLanes(double (&lane)[kRowLanes]) {
  for (int step = kRowLanes / 2; step > 0; step /= 2) {
    for (int l = 0; l < step; ++l) lane[l] += lane[l + step];
  }
  return lane[0];
}

// Computes group scores and their tolerances; a group of one has only one score to sum.
inline void ScoreGroups(const RouterRule& rule, const RowScale& row, const double* x,
                        const double* bias, RouterScratch* s) {
  const int size = rule.group_size();
  const int forming = rule.group_score == GroupScore::kSum2 && size > 1 ? 2 : 1;
  for (int g = 0; g < rule.groups; ++g) {
    Ranked best[2] = {};
    int count = 0;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      count = Offer(best, count, forming, s->value[i], i);
    }
    s->group[g] = best[0].key;
    double tolerance = 0;
    for (int n = 0; n < forming; ++n) {
      const int i = best[n].index;
      tolerance += ToleranceOf(rule, row, x[i], s->score[i], bias != nullptr ? bias[i] : 0.0);
      if (n == 1) s->group[g] += best[1].key;
    }
    s->group_tolerance[g] = tolerance;
  }
}

// Fills `admitted`, sets the group margin and counts the remaining candidates; returns true if the
// limit itself is tied.
inline bool LimitGroups(const RouterRule& rule, const RowScale& row, const double* x,
                        const double* bias, RouterScratch* s, int* candidates, RouterChoice* out) {
  ScoreGroups(rule, row, x, bias, s);
  Ranked best[kMaxExperts] = {};
  const int limit = rule.top_groups + 1;
  int count = 0;
  for (int g = 0; g < rule.groups; ++g) count = Offer(best, count, limit, s->group[g], g);
  out->group_margin = best[limit - 2].key - best[limit - 1].key;
  const bool tied = WithinTolerance(out->group_margin, s->group_tolerance[best[limit - 2].index],
                                    s->group_tolerance[best[limit - 1].index]);
  bool in[kMaxExperts] = {};
  for (int n = 0; n < rule.top_groups; ++n) in[best[n].index] = true;
  int n = 0;
  *candidates = 0;
  const int size = rule.group_size();
  for (int i = 0; i < rule.experts; ++i) {
    if (!in[i / size]) continue;
    *candidates += IsMasked(s->value[i]) ? 0 : 1;
    s->admitted_key[n] = s->value[i];
    s->admitted[n++] = i;
  }
  return tied;
}

}  // namespace internal

namespace internal {

// Computes number and maxima of the candidates of a row that has a NaN or an infinity; the number
// is 0 if the row is poisoned.
inline void ScanMasked(const double* x, int experts, RowScale* row) {
  row->max = -__builtin_inf();
  row->abs_max = 0;
  row->candidates = 0;
  bool poisoned = false;
  for (int i = 0; i < experts; ++i) {
    poisoned |= IsPoison(x[i]);
    if (IsMasked(x[i])) continue;
    ++row->candidates;
    row->max = x[i] > row->max ? x[i] : row->max;
    row->abs_max = AbsValue(x[i]) > row->abs_max ? AbsValue(x[i]) : row->abs_max;
  }
  if (poisoned) row->candidates = 0;
}

}  // namespace internal

namespace internal {

// Maxima of `Lanes` interleaved parts of a row.
template <int Lanes>
struct RowMaxima {
  double max[Lanes];
  double abs[Lanes];
  double poison[Lanes];  // NaN if there was a NaN or an infinity

  explicit RowMaxima(const double* x) {
    PLUMB_SIMD
    for (int l = 0; l < Lanes; ++l) {
      max[l] = x[l];
      abs[l] = AbsValue(x[l]);
      poison[l] = x[l] * 0.0;
    }
  }
  void Take(const double* x) {
    PLUMB_SIMD
    for (int l = 0; l < Lanes; ++l) {
      const double a = AbsValue(x[l]);
      max[l] = x[l] > max[l] ? x[l] : max[l];
      abs[l] = a > abs[l] ? a : abs[l];
      poison[l] += x[l] * 0.0;
    }
  }
};

template <int Lanes>
inline void ScanLanes(const double* x, int experts, RowScale* row, double* poison) {
  RowMaxima<Lanes> lanes(x);
  for (int i = Lanes; i < experts; i += Lanes) {
    lanes.Take(x + (i + Lanes <= experts ? i : experts - Lanes));  // some twice: harmless
  }
  for (int step = Lanes / 2; step > 0; step /= 2) {
    PLUMB_SIMD
    for (int l = 0; l < step; ++l) {
      lanes.max[l] = lanes.max[l + step] > lanes.max[l] ? lanes.max[l + step] : lanes.max[l];
      lanes.abs[l] = lanes.abs[l + step] > lanes.abs[l] ? lanes.abs[l + step] : lanes.abs[l];
      lanes.poison[l] += lanes.poison[l + step];
    }
  }
  row->max = lanes.max[0];
  row->abs_max = lanes.abs[0];
  *poison = lanes.poison[0];
}

}  // namespace internal

// Scans a row of rule.experts recorded values: sets all of RowScale except the sums.
inline RowScale ScanRow(const RouterRule& rule, const double* x) {
  RowScale row;
  double poison;
  if (rule.experts >= 16) {
    internal::ScanLanes<16>(x, rule.experts, &row, &poison);
  } else {
    internal::ScanLanes<1>(x, rule.experts, &row, &poison);
  }
  row.candidates = rule.experts;
  if (!(poison == 0)) internal::ScanMasked(x, rule.experts, &row);
  row.finite = row.candidates >= rule.top_k;
  if (row.finite) row.max_delta = RecordedDelta(row.abs_max, rule.dtype);
  return row;
}

// Computes the sums of a finite row, and scratch->exponential.
inline void SumRow(const RouterRule& rule, const double* x, RouterScratch* scratch, RowScale* row) {
  const int experts = rule.experts;
  double* e = scratch->exponential;
  const double max = row->max;
  for (int i = 0; i < experts; ++i) e[i] = PortableExpNegative(x[i] - max);
  double sum_lane[kRowLanes] = {};
  double weighted_lane[kRowLanes] = {};
  int base = 0;
  for (; base + kRowLanes <= experts; base += kRowLanes) {
    PLUMB_SIMD
    for (int l = 0; l < kRowLanes; ++l) {
      sum_lane[l] += e[base + l];
      weighted_lane[l] += e[base + l] * BelowMax(x[base + l], max);
    }
  }
  for (int l = 0; base + l < experts; ++l) {
    sum_lane[l] += e[base + l];
    weighted_lane[l] += e[base + l] * BelowMax(x[base + l], max);
  }
  row->sum = internal::SumLanes(sum_lane);
  row->weighted = internal::SumLanes(weighted_lane);
}

// Does both.
inline RowScale ScaleRow(const RouterRule& rule, const double* x, RouterScratch* scratch) {
  RowScale row = ScanRow(rule, x);
  if (row.finite) SumRow(rule, x, scratch, &row);
  return row;
}

// Computes selection values of every expert, for rules that rank on them. Returns false if one is
// not finite (a bias that is not, or an overflow).
inline bool SelectionValues(const RouterRule& rule, const RowScale& row, const double* x,
                            const double* bias, RouterScratch* s) {
  double poison = 0;
  for (int i = 0; i < rule.experts; ++i) {
    s->score[i] = rule.function == ScoreFunction::kSoftmax ? s->exponential[i] / row.sum
                                                           : ScoreOf(rule, row, x[i]);
    const double value = rule.has_bias ? s->score[i] + bias[i] : s->score[i];
    poison += IsMasked(x[i]) ? 0.0 : value * 0.0;
    s->value[i] = IsMasked(x[i]) ? -__builtin_inf() : value;
  }
  return poison == 0;
}

// Computes f of the ranked experts; separate loops per function, so that they vectorise.
inline void RankedScores(const RouterRule& rule, const RowScale& row, const double* x,
                         const RouterScratch& scratch, const RouterChoice& choice, double* f) {
  for (int n = 0; n < choice.ranked; ++n) f[n] = x[choice.expert[n]];
  if (rule.function == ScoreFunction::kSoftmax) {
    for (int n = 0; n < choice.ranked; ++n) {
      f[n] = scratch.exponential[choice.expert[n]] / row.sum;
    }
  } else if (rule.function == ScoreFunction::kSigmoid) {
    for (int n = 0; n < choice.ranked; ++n) f[n] = PortableSigmoid(f[n]);
  }
}

// Computes margins and tolerances of the ranked experts.
inline void JudgeRanks(const RouterRule& rule, const RowScale& row, const double* x,
                       const double* bias, const RouterScratch& scratch, bool group_tied,
                       RouterChoice* out) {
  double f[kMaxTopK + 1];
  double tolerance[kMaxTopK + 1];
  RankedScores(rule, row, x, scratch, *out, f);
  for (int n = 0; n < out->ranked; ++n) {
    const int i = out->expert[n];
    const double b = rule.has_bias ? bias[i] : 0.0;
    out->value[n] = rule.has_bias ? f[n] + b : f[n];
    tolerance[n] = ToleranceOf(rule, row, x[i], f[n], b);
  }
  out->rank_order_known = true;
  for (int n = 0; n + 1 < out->count; ++n) {
    if (WithinTolerance(out->value[n] - out->value[n + 1], tolerance[n], tolerance[n + 1])) {
      out->rank_order_known = false;
    }
  }
  out->tied = group_tied;
  out->margin = __builtin_inf();
  if (out->ranked > out->count) {
    const int k = out->count;
    out->margin = out->value[k - 1] - out->value[k];
    if (WithinTolerance(out->margin, tolerance[k - 1], tolerance[k])) out->tied = true;
  }
  out->best_margin = out->ranked > 1 ? out->value[0] - out->value[1] : __builtin_nan("");
}

// Ranks the best experts of a scanned row, and the first that is left out; returns false if it has
// no choice. Needs the sums for a softmax with a bias or a group limit.
inline bool RankExperts(const RouterRule& rule, const RowScale& row, const double* x,
                        const double* bias, RouterScratch* scratch, bool* group_tied,
                        RouterChoice* out) {
  out->finite = row.finite;
  if (!row.finite) return false;
  const double* key = x;
  *group_tied = false;
  out->group_margin = __builtin_inf();
  if (!rule.ranks_recorded()) {
    out->finite = SelectionValues(rule, row, x, bias, scratch);
    if (!out->finite) return false;
    key = scratch->value;
  }
  const bool limited = rule.limited();
  int candidates = row.candidates;
  if (limited) {
    *group_tied = internal::LimitGroups(rule, row, x, bias, scratch, &candidates, out);
    out->finite = candidates >= rule.top_k;
    if (!out->finite) return false;
  }
  const int limit = rule.top_k < candidates ? rule.top_k + 1 : rule.top_k;
  internal::Ranked best[kMaxTopK + 2];
  internal::SelectBest(limited ? scratch->admitted_key : key, limited ? scratch->admitted : nullptr,
                       rule.admitted(), limit, &scratch->hint, best);
  out->ranked = limit;
  out->count = rule.top_k;
  for (int n = 0; n < limit; ++n) out->expert[n] = best[n].index;
  return true;
}

// Computes the choice of a row that ScaleRow scanned. `x` and `bias` (null if none) hold
// rule.experts values.
inline void ChooseExperts(const RouterRule& rule, const RowScale& row, const double* x,
                          const double* bias, RouterScratch* scratch, RouterChoice* out) {
  bool group_tied = false;
  if (!RankExperts(rule, row, x, bias, scratch, &group_tied, out)) return;
  JudgeRanks(rule, row, x, bias, *scratch, group_tied, out);
}

// Does both steps. `x`: rule.experts recorded values as doubles; `bias`: the same number, or null.
inline void ChooseExperts(const RouterRule& rule, const double* x, const double* bias,
                          RouterScratch* scratch, RouterChoice* out) {
  ChooseExperts(rule, ScaleRow(rule, x, scratch), x, bias, scratch, out);
}

}  // namespace plumbline
