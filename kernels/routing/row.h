// Parts of one row in the routing measurement except its choice (base/router/scores.h): statistics
// of the scores, and which recorded choices were kept. Host and device.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/portable_math.h"
#include "base/router/scores.h"
#include "kernels/routing/plan.h"

namespace plumbline {

// Returns H(softmax(x)) in nats: ln Z - sum(e (x - max)) / Z.
PLUMB_HD inline double LogitEntropy(const RowScale& row) {
  return PortableLog(row.sum) - row.weighted / row.sum;
}

// Returns logsumexp(x)^2.
PLUMB_HD inline double SquaredLogSum(const RowScale& row) {
  const double lse = row.max + PortableLog(row.sum);
  return lse * lse;
}

// Returns -p ln p of one score in a row whose sum is `sum`. For a score of 0, returns 0.
PLUMB_HD inline double ScoreEntropyTerm(double score, double sum) {
  const double p = score / sum;
  return p < 2.2250738585072014e-308 ? 0.0 : -p * PortableLog(p);
}

// Returns true if a row's sum of scores can be scaled to 1: no score was negative, the sum is
// positive.
PLUMB_HD inline bool Normalisable(double smallest, double sum) {
  return smallest >= 0 && sum >= 2.2250738585072014e-308 && IsFiniteValue(sum);
}

// Returns a recorded score's part of its row's sum: a masked expert has no share.
PLUMB_HD inline double ShareOf(double x) { return IsMasked(x) ? 0.0 : x; }

// Returns H of non-negative scores scaled to sum 1; NaN if they cannot be scaled. Lane order as
// ScaleRow.
inline double ScoreEntropy(const double* x, int experts) {
  double sum_lane[kRowLanes] = {};
  double term_lane[kRowLanes] = {};
  double smallest = ShareOf(x[0]);
  for (int i = 0; i < experts; ++i) {
    const double share = ShareOf(x[i]);
    sum_lane[i % kRowLanes] += share;
    smallest = share < smallest ? share : smallest;
  }
  const double sum = internal::SumLanes(sum_lane);
  if (!Normalisable(smallest, sum)) return __builtin_nan("");
  for (int i = 0; i < experts; ++i) {
    term_lane[i % kRowLanes] += ScoreEntropyTerm(ShareOf(x[i]), sum);
  }
  return internal::SumLanes(term_lane);
}

// Returns true if the entry has a probability: maps padded to capacity have true entries of
// probability zero. NaN is not zero.
PLUMB_HD inline bool HasProbability(const RoutingPlan& plan, int64_t row, int64_t e) {
  return !plan.probs_by_expert || plan.probs.Number(row, e) != 0;
}

// Returns true if the routing map keeps expert e of this row.
PLUMB_HD inline bool KeptInMap(const RoutingPlan& plan, int64_t row, int64_t e) {
  return plan.map.Integer(row, e) != 0 && HasProbability(plan, row, e);
}

// Returns true if the j-th recorded choice, expert e, was kept.
PLUMB_HD inline bool KeptIndex(const RoutingPlan& plan, int64_t row, int j, int64_t e) {
  if (plan.keep.present()) return plan.keep.Integer(row, j) != 0;
  return !plan.map.present() || KeptInMap(plan, row, e);
}

}  // namespace plumbline
