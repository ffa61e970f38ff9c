#include "analysis/drift/staleness.h"

#include <cmath>

#include "analysis/drift/values/values.h"

namespace plumbline::analysis {

void StalenessSplit::Add(bool fresh, double moved, double apart, ContextKey context) {
  ClusterSums<kSize>::Vector token{};
  if (fresh) {
    token[kN0] = 1;
    token[kSS0] = moved * moved;
  } else {
    token[kN] = 1;
    token[kSS] = moved * moved;
    token[kMM] = apart * apart;
    token[kSM] = moved * apart;
  }
  for (size_t i = 0; i < token.size(); ++i) v_[i] += token[i];
  contexts_.Add(context, token);
}

void StalenessSplit::EndSequence() {
  if (v_[kN] > 0) ++stale_sequences_;
  if (v_[kN] > 0 || v_[kN0] > 0) sums_.Add(v_);
  v_ = {};
}

SplitFit StalenessSplit::Fit() const {
  const auto& s = sums_.total();
  SplitFit fit;
  fit.stale_count = s[kN];
  fit.fresh_count = s[kN0];
  fit.sequences = stale_sequences_;
  if (stale_sequences_ < kFewestClusters) return fit;
  fit.judged = true;
  const double n = s[kN], n0 = s[kN0];
  fit.own = n0 > 0 ? s[kSS0] / n0 / 2 : 0;
  const double moved = s[kSS] / n / 2;
  fit.staleness = moved - fit.own;
  fit.numerics = s[kMM] / n / 2;
  fit.cross = s[kSM] / n;
  fit.excess = fit.staleness - fit.numerics;
  // Influence of a sequence on a mean of squares: (its sum - mean * its count) / all counts.
  const auto error = [&](double on_moved, double on_apart, double on_own) {
    ClusterSums<kSize>::Vector c{};
    c[kSS] = on_moved / (2 * n);
    c[kMM] = on_apart / (2 * n);
    c[kN] = -(on_moved * moved + on_apart * fit.numerics) / n;
    if (n0 > 0) {
      c[kSS0] = on_own / (2 * n0);
      c[kN0] = -on_own * fit.own / n0;
    }
    const double clusters = static_cast<double>(sums_.clusters());
    return contexts_.Error(c, std::sqrt(sums_.Quadratic(c) * clusters / (clusters - 1)), kNearLook);
  };
  fit.staleness_error = error(1, 0, -1);
  fit.numerics_error = error(0, 1, 0);
  fit.excess_error = error(1, -1, -1);
  return fit;
}

void VersionJumps::Add(int64_t lag, double d) {
  lags_.push_back(lag);
  halves_.push_back(d * d / 2);
}

bool VersionJumps::Window(size_t at, int direction, double* mean) const {
  double sum = 0;
  size_t n = 0;
  for (size_t i = at; i < lags_.size() && n < kWindow && lags_[i] == lags_[at];
       i += static_cast<size_t>(direction)) {  // below 0, i wraps to a value above the size
    sum += halves_[i];
    ++n;
  }
  if (n < kFewest) return false;
  *mean = sum / static_cast<double>(n);
  return true;
}

void VersionJumps::EndSequence() {
  ClusterSums<kSize>::Vector v{};
  for (size_t i = 1; i < lags_.size(); ++i) {
    double before = 0, after = 0;
    if (lags_[i] >= lags_[i - 1] || !Window(i - 1, -1, &before) || !Window(i, 1, &after)) continue;
    v[kN] += 1;
    v[kBefore] += before;
    v[kAfter] += after;
    v[kLagBefore] += static_cast<double>(lags_[i - 1]);
    v[kLagAfter] += static_cast<double>(lags_[i]);
  }
  if (v[kN] > 0) sums_.Add(v);
  lags_.clear();
  halves_.clear();
}

JumpFit VersionJumps::Fit() const {
  const auto& s = sums_.total();
  JumpFit fit;
  fit.boundaries = s[kN];
  fit.sequences = sums_.clusters();
  if (fit.sequences < kFewestClusters) return fit;
  fit.judged = true;
  const double n = s[kN], clusters = static_cast<double>(fit.sequences);
  fit.before = s[kBefore] / n;
  fit.after = s[kAfter] / n;
  fit.lag_before = s[kLagBefore] / n;
  fit.lag_after = s[kLagAfter] / n;
  fit.fall = fit.before - fit.after;
  fit.excess = fit.fall - fit.after;
  const auto error = [&](double on_after) {
    ClusterSums<kSize>::Vector c{};
    c[kBefore] = 1 / n;
    c[kAfter] = on_after / n;
    c[kN] = -(fit.before + on_after * fit.after) / n;
    return std::sqrt(sums_.Quadratic(c) * clusters / (clusters - 1));
  };
  fit.fall_error = error(-1);
  fit.excess_error = error(-2);
  return fit;
}

}  // namespace plumbline::analysis
