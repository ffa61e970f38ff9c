// Defines which experts a token's own scores choose, and whether the recorded precision decides it.
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
// larger of their two tolerances, or if the same is true of the last admitted and the first refused
// group (a group's tolerance: that of the scores that form it, summed for sum2).
//
// A recorded -inf masks its expert (absent and null experts, experts of another task): it is no
// candidate for any bias, its s_i is -inf, its share of a softmax 0, and it counts in no maximum,
// tolerance or margin. A row needs k candidates; with exactly k (as with k >= E) it is never tied.
// A group whose score lacks a candidate scores -inf, and two such groups at the limit are tied. NaN
// and +inf poison the row.
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
  // The function that is still to be applied to the recorded scores: identity if they were recorded
  // after it.
  ScoreFunction function = ScoreFunction::kIdentity;
  bool has_bias = false;
  int groups = 0;  // 0 or 1: no group limit
  int top_groups = 0;
  GroupScore group_score = GroupScore::kAbsent;

  PLUMB_HD bool limited() const { return groups > 1 && top_groups < groups; }
  PLUMB_HD int group_size() const { return limited() ? experts / groups : experts; }
  PLUMB_HD int admitted() const { return limited() ? top_groups * group_size() : experts; }
  // Returns true if the recorded values rank like the selection values, and are not rounded once
  // more: every f is monotone, so this holds without bias and groups.
  PLUMB_HD bool ranks_recorded() const { return !has_bias && !limited(); }
};

// Figures of a whole row on which its experts' values depend; over its candidates only.
struct RowScale {
  // No NaN, no +inf, at least top_k candidates; otherwise the members below have no meaning.
  bool finite = false;
  int candidates = 0;    // experts that are not masked
  double max = 0;        // max x
  double abs_max = 0;    // max |x|
  double max_delta = 0;  // max_j delta_j
  double sum = 0;        // sum exp(x - max)
  double weighted = 0;   // sum exp(x - max) (x - max)
};

PLUMB_HD inline bool IsMasked(double x) { return x == -__builtin_inf(); }
PLUMB_HD inline bool IsPoison(double x) { return !(x < __builtin_inf()); }

// ---- one expert ----------------------------------------------------------------------------

PLUMB_HD inline double PortableSigmoid(double x) {
  const double e = PortableExp(-AbsValue(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

// Returns the distance of a value from the row's maximum, bounded where its exponential is already
// 0.
PLUMB_HD inline double BelowMax(double x, double max) {
  const double d = x - max;
  return d < -745.0 ? -745.0 : d;
}

PLUMB_HD inline double RecordedDelta(double x, DType dtype) { return 2.0 * UlpOf(x, dtype); }

// Returns f(x); 0 or -inf for a masked expert.
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

// Returns the tolerance of f(x) + bias, f = ScoreOf(rule, row, x).
PLUMB_HD inline double ToleranceOf(const RouterRule& rule, const RowScale& row, double x, double f,
                                   double bias) {
  if (IsMasked(x)) return 0.0;
  const double delta = RecordedDelta(x, rule.dtype);
  double carried = delta;
  if (rule.function == ScoreFunction::kSigmoid) carried = f * (1.0 - f) * delta;
  if (rule.function == ScoreFunction::kSoftmax) carried = f * (delta + row.max_delta);
  if (!rule.has_bias && rule.function == ScoreFunction::kIdentity) return carried;
  const double a = AbsValue(f);
  const double b = rule.has_bias ? AbsValue(bias) : 0.0;
  return carried + 2.0 * UlpOf(a > b ? a : b, DType::kF32);
}

// Returns true if the larger of two selection values is not certainly the larger. NaN counts as
// tied.
PLUMB_HD inline bool WithinTolerance(double margin, double tolerance_a, double tolerance_b) {
  return !(margin > (tolerance_a > tolerance_b ? tolerance_a : tolerance_b));
}

// Returns true if a is selected before b: higher value first, lower index among equals.
PLUMB_HD inline bool RanksBefore(double value_a, int index_a, double value_b, int index_b) {
  return value_a > value_b || (value_a == value_b && index_a < index_b);
}

}  // namespace plumbline
