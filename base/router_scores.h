// What a token's own scores choose, and whether the precision they were recorded in can say so.
//
// The one definition of the selection and of a *tied* row, used by the routing measurement (host
// and device) and by the rules that replay it. Host and device give the same bits: every value
// comes from operations in a fixed order (base/portable_math.h), reductions run over 32 lanes as a
// warp would.
//
// Selection value of expert i: s_i = f(x_i) + b_i, f = identity, softmax over the row, or sigmoid.
// The recorded x_i stands for a value within delta_i = 2 ulp (of the recorded dtype) of it; carried
// through f, in double:
//   identity  delta_i
//   sigmoid   f(1-f) delta_i
//   softmax   f_i (delta_i + max_j delta_j)
// plus 2 f32 ulp of max(|f(x_i)|, |b_i|) when there is a bias or f is not the identity (routers
// compute in f32). A row is tied when the k-th and the (k+1)-th value are no further apart than the
// larger of their two tolerances, or the last admitted and first refused group likewise (a group's
// tolerance: that of the scores that form it, summed for sum2). k >= E is never tied.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"
#include "base/portable_math.h"

namespace plumbline {

// Values equal those of v1::ScoreFunction and v1::RoutingConfig::GroupScore.
enum class ScoreFunction : uint8_t { kIdentity = 0, kSoftmax = 1, kSigmoid = 2 };
enum class GroupScore : uint8_t { kAbsent = 0, kMax = 1, kSum2 = 2 };  // absent: max

// Bounds of the measurement.
inline constexpr int kMaxExperts = 512;
inline constexpr int kMaxTopK = 32;
inline constexpr int kRowLanes = 32;

// How rows are judged. The caller has checked: 1 <= experts <= kMaxExperts,
// 1 <= top_k <= min(kMaxTopK, admitted()), groups divides experts.
struct RouterRule {
  int experts = 0;
  int top_k = 0;
  DType dtype = DType::kF32;  // of the recorded scores
  // What is still to be applied to the recorded scores: identity where they were recorded after it.
  ScoreFunction function = ScoreFunction::kIdentity;
  bool has_bias = false;
  int groups = 0;  // 0 or 1: no group limit
  int top_groups = 0;
  GroupScore group_score = GroupScore::kAbsent;

  PLUMB_HD bool limited() const { return groups > 1 && top_groups < groups; }
  PLUMB_HD int group_size() const { return limited() ? experts / groups : experts; }
  PLUMB_HD int admitted() const { return limited() ? top_groups * group_size() : experts; }
  // Every f is monotone: without bias and groups the recorded values rank as the selection values
  // do, and are not rounded once more.
  PLUMB_HD bool ranks_recorded() const { return !has_bias && !limited(); }
};

// What of a whole row its experts' values depend on.
struct RowScale {
  bool finite = false;   // no NaN, no infinity; nothing below means anything otherwise
  double max = 0;        // max x
  double abs_max = 0;    // max |x|
  double max_delta = 0;  // max_j delta_j
  double sum = 0;        // sum exp(x - max)
  double weighted = 0;   // sum exp(x - max) (x - max)
};

// ---- one expert ----------------------------------------------------------------------------

PLUMB_HD inline double PortableSigmoid(double x) {
  const double e = PortableExp(-AbsValue(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

// Distance of a value below the row's maximum, bounded where its exponential is 0 already.
PLUMB_HD inline double BelowMax(double x, double max) {
  const double d = x - max;
  return d < -745.0 ? -745.0 : d;
}

PLUMB_HD inline double RecordedDelta(double x, DType dtype) { return 2.0 * UlpOf(x, dtype); }

// f(x).
PLUMB_HD inline double ScoreOf(const RouterRule& rule, const RowScale& row, double x) {
  switch (rule.function) {
    case ScoreFunction::kSoftmax:
      return PortableExp(BelowMax(x, row.max)) / row.sum;
    case ScoreFunction::kSigmoid:
      return PortableSigmoid(x);
    case ScoreFunction::kIdentity:
      break;
  }
  return x;
}

// The tolerance of f(x) + bias, f = ScoreOf(rule, row, x).
PLUMB_HD inline double ToleranceOf(const RouterRule& rule, const RowScale& row, double x, double f,
                                   double bias) {
  const double delta = RecordedDelta(x, rule.dtype);
  double carried = delta;
  if (rule.function == ScoreFunction::kSigmoid) carried = f * (1.0 - f) * delta;
  if (rule.function == ScoreFunction::kSoftmax) carried = f * (delta + row.max_delta);
  if (!rule.has_bias && rule.function == ScoreFunction::kIdentity) return carried;
  const double a = AbsValue(f);
  const double b = rule.has_bias ? AbsValue(bias) : 0.0;
  return carried + 2.0 * UlpOf(a > b ? a : b, DType::kF32);
}

// True when the larger of two selection values is not surely the larger. NaN counts as tied.
PLUMB_HD inline bool WithinTolerance(double margin, double tolerance_a, double tolerance_b) {
  return !(margin > (tolerance_a > tolerance_b ? tolerance_a : tolerance_b));
}

// The order of selection: higher value first, lower index among equals.
PLUMB_HD inline bool RanksBefore(double value_a, int index_a, double value_b, int index_b) {
  return value_a > value_b || (value_a == value_b && index_a < index_b);
}

// ---- one row, on the host ------------------------------------------------------------------

// What a row's own scores choose.
struct RouterChoice {
  bool finite = false;            // false: nothing below is set
  bool tied = false;              // the recorded precision leaves the chosen set open
  bool rank_order_known = false;  // each chosen one is surely above the next
  int count = 0;                  // chosen: top_k
  int ranked = 0;                 // count, or count + 1 with the first that was not chosen
  double margin = 0;        // k-th minus (k+1)-th selection value; infinite when all are chosen
  double group_margin = 0;  // last admitted minus first refused group; infinite without a limit
  double best_margin = 0;   // first minus second; NaN when only one can be chosen
  int32_t expert[kMaxTopK + 1];  // in rank order
  double value[kMaxTopK + 1];    // selection values, in rank order
};

// Working memory of one row; about 26 KiB. Reused between rows, one per thread.
struct RouterScratch {
  double exponential[kMaxExperts];  // exp(x - max)
  double score[kMaxExperts];        // f(x); set only where the selection needs it for every expert
  double value[kMaxExperts];        // s
  double group[kMaxExperts];
  double group_tolerance[kMaxExperts];
  int32_t admitted[kMaxExperts];  // experts of admitted groups, ascending
  double admitted_key[kMaxExperts];
  double hint = 0;  // see SelectBest
};

namespace internal {

// Sum over the lanes in the order of a warp's butterfly.
inline double SumLanes(double (&lane)[kRowLanes]) {
  for (int step = kRowLanes / 2; step > 0; step /= 2) {
    for (int l = 0; l < step; ++l) lane[l] += lane[l + step];
  }
  return lane[0];
}

struct Ranked {
  double key;
  int32_t index;
};

// Keeps the `limit` best of what is offered in ascending index order: among equals the earlier one
// stays ahead. Returns the new count.
inline int Offer(Ranked* best, int count, int limit, double key, int32_t index) {
  if (count == limit && !(key > best[count - 1].key)) return count;
  int at = count < limit ? count : limit - 1;
  for (; at > 0 && key > best[at - 1].key; --at) best[at] = best[at - 1];
  best[at] = {key, index};
  return count < limit ? count + 1 : limit;
}

// Places n candidates by counting who is ahead of each: no branch depends on the values.
// `best` has room for limit + 1.
inline void RankByCounting(const double* key, const int32_t* index, int n, int limit,
                           Ranked* best) {
  for (int a = 0; a < n; ++a) {
    const double k = key[a];
    int64_t ahead = 0;
    for (int b = 0; b < a; ++b) ahead += key[b] >= k ? 1 : 0;
    for (int b = a + 1; b < n; ++b) ahead += key[b] > k ? 1 : 0;
    best[ahead < limit ? ahead : limit] = {k, index[a]};
  }
}

// The `limit` best of n keys, in order; ties to the earlier. index[] ascends, null for 0 .. n-1.
// `hint` guesses a value that a few more than `limit` keys reach; it costs time when it is wrong,
// never the result, and is updated for the next row. `best` has room for limit + 1.
inline void SelectBest(const double* key, const int32_t* index, int n, int limit, double* hint,
                       Ranked* best) {
  constexpr int kMost = 64;  // beyond it counting costs more than keeping a sorted list
  double near_key[kMaxExperts];
  int32_t near_index[kMaxExperts];
  const double floor = n > 16 ? *hint : -__builtin_inf();
  int near = 0;
  for (int i = 0; i < n; ++i) {
    near_key[near] = key[i];
    near_index[near] = index != nullptr ? index[i] : i;
    near += key[i] >= floor ? 1 : 0;
  }
  if (near >= limit && near <= kMost) {
    RankByCounting(near_key, near_index, near, limit, best);
  } else {
    int count = 0;
    for (int i = 0; i < n; ++i) {
      count = Offer(best, count, limit, key[i], index != nullptr ? index[i] : i);
    }
  }
  const double last = best[limit - 1].key;
  const double wanted = last - 0.3 * (best[0].key - last);
  *hint = IsFiniteValue(wanted) ? 0.75 * *hint + 0.25 * wanted : 0;
}

// Group scores and their tolerances; a group of one has only its one score to sum.
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

// Fills `admitted`; sets the group margin; true when the limit itself is tied.
inline bool LimitGroups(const RouterRule& rule, const RowScale& row, const double* x,
                        const double* bias, RouterScratch* s, RouterChoice* out) {
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
  const int size = rule.group_size();
  for (int i = 0; i < rule.experts; ++i) {
    if (!in[i / size]) continue;
    s->admitted_key[n] = s->value[i];
    s->admitted[n++] = i;
  }
  return tied;
}

}  // namespace internal

// Scans a row of rule.experts recorded values; fills scratch->exponential when it is finite.
inline RowScale ScaleRow(const RouterRule& rule, const double* x, RouterScratch* scratch) {
  RowScale row;
  double max_lane[kRowLanes];
  double abs_lane[kRowLanes] = {};
  double poison_lane[kRowLanes] = {};
  for (double& m : max_lane) m = x[0];
  const int experts = rule.experts;
  for (int base = 0; base < experts; base += kRowLanes) {
    const int width = experts - base < kRowLanes ? experts - base : kRowLanes;
    for (int l = 0; l < width; ++l) {
      const double v = x[base + l];
      const double a = AbsValue(v);
      max_lane[l] = v > max_lane[l] ? v : max_lane[l];
      abs_lane[l] = a > abs_lane[l] ? a : abs_lane[l];
      poison_lane[l] += v * 0.0;  // NaN for NaN and infinity
    }
  }
  double poison = 0;
  row.max = max_lane[0];
  for (int l = 0; l < kRowLanes; ++l) {
    row.max = max_lane[l] > row.max ? max_lane[l] : row.max;
    row.abs_max = abs_lane[l] > row.abs_max ? abs_lane[l] : row.abs_max;
    poison += poison_lane[l];
  }
  row.finite = poison == 0;
  if (!row.finite) return row;
  row.max_delta = RecordedDelta(row.abs_max, rule.dtype);

  double* e = scratch->exponential;
  for (int i = 0; i < experts; ++i) e[i] = PortableExp(BelowMax(x[i], row.max));
  double sum_lane[kRowLanes] = {};
  double weighted_lane[kRowLanes] = {};
  for (int base = 0; base < experts; base += kRowLanes) {
    const int width = experts - base < kRowLanes ? experts - base : kRowLanes;
    for (int l = 0; l < width; ++l) {
      sum_lane[l] += e[base + l];
      weighted_lane[l] += e[base + l] * BelowMax(x[base + l], row.max);
    }
  }
  row.sum = internal::SumLanes(sum_lane);
  row.weighted = internal::SumLanes(weighted_lane);
  return row;
}

// Selection values of every expert, for rules that rank on them. False when one is not finite (a
// bias that is not, or an overflow).
inline bool SelectionValues(const RouterRule& rule, const RowScale& row, const double* x,
                            const double* bias, RouterScratch* s) {
  double poison = 0;
  for (int i = 0; i < rule.experts; ++i) {
    s->score[i] = rule.function == ScoreFunction::kSoftmax ? s->exponential[i] / row.sum
                                                           : ScoreOf(rule, row, x[i]);
    s->value[i] = rule.has_bias ? s->score[i] + bias[i] : s->score[i];
    poison += s->value[i] * 0.0;
  }
  return poison == 0;
}

// f of what was ranked; loops apart by function, so that they vectorise.
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

// Margins and tolerances of what was ranked.
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

// The choice of a row that ScaleRow scanned. `x` and `bias` (null without one) hold rule.experts
// values.
inline void ChooseExperts(const RouterRule& rule, const RowScale& row, const double* x,
                          const double* bias, RouterScratch* scratch, RouterChoice* out) {
  out->finite = row.finite;
  if (!row.finite) return;
  const double* key = x;
  bool group_tied = false;
  out->group_margin = __builtin_inf();
  if (!rule.ranks_recorded()) {
    out->finite = SelectionValues(rule, row, x, bias, scratch);
    if (!out->finite) return;
    key = scratch->value;
  }
  const bool limited = rule.limited();
  if (limited) group_tied = internal::LimitGroups(rule, row, x, bias, scratch, out);
  const int candidates = rule.admitted();
  const int limit = rule.top_k < candidates ? rule.top_k + 1 : candidates;
  internal::Ranked best[kMaxTopK + 2];
  internal::SelectBest(limited ? scratch->admitted_key : key, limited ? scratch->admitted : nullptr,
                       candidates, limit, &scratch->hint, best);
  out->ranked = limit;
  out->count = rule.top_k;
  for (int n = 0; n < limit; ++n) out->expert[n] = best[n].index;
  JudgeRanks(rule, row, x, bias, *scratch, group_tied, out);
}

// Both steps. `x`: rule.experts recorded values as doubles; `bias`: as many, or null.
inline void ChooseExperts(const RouterRule& rule, const double* x, const double* bias,
                          RouterScratch* scratch, RouterChoice* out) {
  ChooseExperts(rule, ScaleRow(rule, x, scratch), x, bias, scratch, out);
}

}  // namespace plumbline
