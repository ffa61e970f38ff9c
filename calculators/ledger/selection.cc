#include "calculators/ledger/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace plumbline::ledger {
namespace {

// Priors and grid of the mean and the spread of the true ln multipliers.
constexpr double kMeanPrior = 0.05, kSpreadPrior = 0.05;  // standard deviations, ln
constexpr double kLeastMean = -0.25, kStep = 0.005, kLeastSpread = 0.0025;
constexpr int kMeans = 121, kSpreads = 30;
constexpr double kLeastVariance = 1e-8;

// The variance that all share, and the separate variance of each.
struct Variances {
  double shared = kLeastVariance;
  std::vector<double> own;
  double own_mean = 0;  // geometric
};

Variances Split(const Measured& measured) {
  const size_t n = measured.y.size();
  Variances v;
  double sum = 0, logs = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) sum += i == j ? 0 : measured.covariance[i * n + j];
  }
  if (n > 1) v.shared = std::max(kLeastVariance, sum / static_cast<double>(n * (n - 1)));
  for (size_t i = 0; i < n; ++i) {
    v.own.push_back(std::max(kLeastVariance, measured.covariance[i * n + i] - v.shared));
    logs += std::log(v.own.back());
  }
  v.own_mean = std::exp(logs / static_cast<double>(n));
  return v;
}

// One point of the grid.
struct GridPoint {
  double mean = 0, spread = 0, weight = 0;  // weight: first ln, then relative to 1
};

// The posterior of (mean, spread) on the grid, and the resulting sum of the kept ones.
class Grid {
 public:
  explicit Grid(const Measured& measured) : measured_(measured), v_(Split(measured)) {
    for (const bool kept : measured.kept) kept_ += kept ? 1 : 0;
    Weigh();
  }

  Selected Moments() const {
    Selected out;
    out.shared = v_.shared;
    out.s.assign(measured_.y.size(), 0);
    for (const GridPoint& p : points_) out.sum += p.weight * Sum(p);
    for (const GridPoint& p : points_) {
      const double off = Sum(p) - out.sum;
      out.variance += p.weight * (Variance(p) + off * off);
      for (size_t i = 0; i < out.s.size(); ++i) out.s[i] += p.weight * Expected(p, i);
    }
    return out;
  }

 private:
  // Computes the weights of all points; subtracts the largest ln before exp.
  void Weigh() {
    double most = -std::numeric_limits<double>::infinity();
    for (int t = 0; t < kSpreads; ++t) {
      const double spread = kLeastSpread + kStep * t;
      double logs = 0;
      for (const double own : v_.own)
        logs += std::log(2 * std::numbers::pi * (spread * spread + own)) / 2;
      for (int m = 0; m < kMeans; ++m) {
        const double mean = kLeastMean + kStep * m;
        points_.push_back({mean, spread, LogWeight(mean, spread) - logs});
        most = std::max(most, points_.back().weight);
      }
    }
    double sum = 0;
    for (GridPoint& p : points_) sum += p.weight = std::exp(p.weight - most);
    for (GridPoint& p : points_) p.weight /= sum;
  }

  // Without the constant factors of the normal densities.
  double LogWeight(double mean, double spread) const {
    const double own = spread * spread;
    double log = -mean * mean / (2 * (kMeanPrior * kMeanPrior + v_.shared)) -
                 own / (2 * kSpreadPrior * kSpreadPrior);
    for (size_t i = 0; i < v_.own.size(); ++i) {
      const double off = measured_.y[i] - mean;
      log -= off * off / (2 * (own + v_.own[i]));
    }
    // Changes that were tried and are not listed appeared to have no benefit. Their number may be
    // unknown.
    const double z = mean / std::sqrt(own + v_.own_mean);
    if (!measured_.tried) return log - static_cast<double>(kept_) * LogNormalCdf(z);
    const auto unlisted = *measured_.tried - static_cast<int64_t>(v_.own.size());
    return unlisted > 0 ? log + static_cast<double>(unlisted) * LogNormalCdf(-z) : log;
  }

  // Returns the share of the measured value that is used.
  double Shrink(const GridPoint& p, size_t i) const {
    return p.spread * p.spread / (p.spread * p.spread + v_.own[i]);
  }
  // Returns a true ln multiplier, given the point.
  double Expected(const GridPoint& p, size_t i) const {
    return p.mean * kMeanPrior * kMeanPrior / (kMeanPrior * kMeanPrior + v_.shared) +
           Shrink(p, i) * (measured_.y[i] - p.mean);
  }
  // Sums over the kept ones.
  double Sum(const GridPoint& p) const {
    double sum = 0;
    for (size_t i = 0; i < v_.own.size(); ++i) sum += measured_.kept[i] ? Expected(p, i) : 0;
    return sum;
  }
  double Variance(const GridPoint& p) const {
    constexpr double kPrior = kMeanPrior * kMeanPrior;
    const double k = static_cast<double>(kept_);
    double sum = k * k * kPrior * v_.shared / (kPrior + v_.shared);
    for (size_t i = 0; i < v_.own.size(); ++i)
      sum += measured_.kept[i] ? Shrink(p, i) * v_.own[i] : 0;
    return sum;
  }

  const Measured& measured_;
  Variances v_;
  size_t kept_ = 0;
  std::vector<GridPoint> points_;
};

}  // namespace

double LogNormalCdf(double z) {
  if (z > 0) return std::log1p(-std::erfc(z / std::numbers::sqrt2) / 2);
  if (z > -30) return std::log(std::erfc(-z / std::numbers::sqrt2) / 2);
  // Mills' ratio as a series. At 30 the first omitted term is 105 / 30^8.
  const double i = 1 / (z * z);
  return -z * z / 2 - std::log(-z) - std::log(2 * std::numbers::pi) / 2 +
         std::log1p(-i * (1 - 3 * i * (1 - 5 * i)));
}

Selected Select(const Measured& measured) { return Grid(measured).Moments(); }

}  // namespace plumbline::ledger
