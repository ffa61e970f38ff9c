#include "analysis/drift/values/fit.h"

#include <cmath>
#include <limits>

#include "base/real.h"

namespace plumbline::analysis {
namespace {

// Applies the usual correction for few clusters.
double Corrected(double sum_of_squares, uint64_t clusters) {
  if (clusters < kFewestClusters) return kNaN;
  const double n = static_cast<double>(clusters);
  return std::sqrt(sum_of_squares * n / (n - 1));
}

}  // namespace

void ClusteredMean::EndSequence() {
  if (v_[0] > 0) sums_.Add(v_);
  v_ = {};
}

double ClusteredMean::standard_error() const {
  const double n = count();
  const ClusterSums<2>::Vector influence = {-mean() / n, 1 / n};
  return contexts_.Error(influence, Corrected(sums_.Quadratic(influence), sums_.clusters()));
}

void ClusteredSlope::EndSequence() {
  if (v_[0] > 0) sums_.Add(v_);
  v_ = {};
}

void ClusteredSlope::Merge(const ClusteredSlope& other) {
  sums_.Merge(other.sums_);
  contexts_.Merge(other.contexts_);
  yy_ += other.yy_;
}

SlopeFit ClusteredSlope::Fit() const {
  const auto& [n, x, y, xx, xy] = sums_.total();
  SlopeFit fit;
  fit.count = n;
  fit.sequences = sums_.clusters();
  const double mx = x / n, my = y / n;
  fit.variance_x = xx / n - mx * mx;
  fit.variance_y = yy_ / n - my * my;
  // A constant has only the spread of rounding errors, which does not count.
  if (!(fit.variance_x > 1e-12 * (xx / n))) {
    fit.slope = fit.standard_error = fit.sequence_error = fit.intercept = kNaN;
    return fit;
  }
  const double covariance = xy / n - mx * my;
  fit.slope = covariance / fit.variance_x;
  fit.intercept = my - fit.slope * mx;
  if (fit.variance_y > 1e-12 * (yy_ / n))
    fit.r2 = covariance * covariance / (fit.variance_x * fit.variance_y);
  // Score of a token: (x - mx)(y - my - slope (x - mx)), in terms of the sums.
  const double b = fit.slope;
  const ClusterSums<5>::Vector score = {mx * my - b * mx * mx, -my + 2 * b * mx, -mx, -b, 1};
  const double by_sequence = Corrected(sums_.Quadratic(score), sums_.clusters());
  fit.standard_error = contexts_.Error(score, by_sequence) / (n * fit.variance_x);
  fit.sequence_error = by_sequence / (n * fit.variance_x);
  return fit;
}

void LagRegression::Add(double lag, double y, ContextKey context) {
  const double square = lag * lag;
  ClusterSums<kSize>::Vector token{};
  if (lag == 0) {
    token[kN0] = 1;
    token[kY0] = y;
  } else {
    token[kN] = 1;
    token[kL1] = lag;
    token[kL2] = square;
    token[kL3] = square * lag;
    token[kL4] = square * square;
    token[kL1Y] = lag * y;
    token[kL2Y] = square * y;
  }
  for (size_t i = 0; i < token.size(); ++i) v_[i] += token[i];
  contexts_.Add(context, token);
}

void LagRegression::EndSequence() {
  if (v_[kN0] > 0 || v_[kN] > 0) sums_.Add(v_);
  v_ = {};
}

LagFit LagRegression::Fit(double lag) const {
  const auto& s = sums_.total();
  LagFit fit;
  fit.zero_count = s[kN0];
  fit.stale_count = s[kN];
  fit.sequences = sums_.clusters();
  fit.fitted = s[kN0] > 0 && s[kN] > 0;
  if (!fit.fitted) return fit;
  fit.at_zero = s[kY0] / s[kN0];
  const double a = fit.at_zero;
  const double r1 = s[kL1Y] - a * s[kL1], r2 = s[kL2Y] - a * s[kL2];
  const double determinant = s[kL2] * s[kL4] - s[kL3] * s[kL3];
  // Both coefficients are free if the lags can separate them and both estimates are positive.
  // Otherwise only the better one is free. {{i11, i12}, {i12, i22}} is the inverse on the free
  // ones.
  double i11 = 0, i12 = 0, i22 = 0;
  bool both = determinant > 1e-9 * s[kL2] * s[kL4];
  if (both) {
    i11 = s[kL4] / determinant;
    i12 = -s[kL3] / determinant;
    i22 = s[kL2] / determinant;
    both = i11 * r1 + i12 * r2 >= 0 && i12 * r1 + i22 * r2 >= 0;
  }
  if (!both) {
    const double gain1 = r1 > 0 ? r1 * r1 / s[kL2] : 0, gain2 = r2 > 0 ? r2 * r2 / s[kL4] : 0;
    i11 = gain1 >= gain2 ? 1 / s[kL2] : 0;
    i22 = gain1 >= gain2 ? 0 : 1 / s[kL4];
    i12 = 0;
  }
  fit.linear = std::max(i11 * r1 + i12 * r2, 0.0);
  fit.quadratic = std::max(i12 * r1 + i22 * r2, 0.0);
  fit.stale_part = fit.linear * lag + fit.quadratic * lag * lag;
  fit.excess = fit.stale_part - a;

  // Influence of a sequence on excess: w1 u1 + w2 u2 + g (y0 - a n0), where u_j are its scores.
  const double w1 = lag * i11 + lag * lag * i12, w2 = lag * i12 + lag * lag * i22;
  const double g = -(1 + w1 * s[kL1] + w2 * s[kL2]) / s[kN0];
  ClusterSums<kSize>::Vector c{};
  c[kN0] = -g * a;
  c[kY0] = g;
  c[kL1] = -w1 * a;
  c[kL2] = -w1 * fit.linear - w2 * a;
  c[kL3] = -w1 * fit.quadratic - w2 * fit.linear;
  c[kL4] = -w2 * fit.quadratic;
  c[kL1Y] = w1;
  c[kL2Y] = w2;
  fit.excess_error = contexts_.Error(c, Corrected(sums_.Quadratic(c), sums_.clusters()), kNearLook);
  return fit;
}

}  // namespace plumbline::analysis
