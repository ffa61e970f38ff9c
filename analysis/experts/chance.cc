#include "analysis/experts/chance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/real.h"

namespace plumbline::analysis {
namespace {

constexpr double kTwoPi = 6.283185307179586;

// Returns ln n! minus Stirling's n ln n - n + ln(2 pi n)/2. (std::lgamma writes a global variable.)
double StirlingError(double n) {
  if (n >= 16) {
    const double r = 1 / (n * n);
    return (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r / 1680))) / n;
  }
  double log_factorial = 0;
  for (int i = 2; i <= static_cast<int>(n); ++i) log_factorial += std::log(i);
  return log_factorial - (n * std::log(n) - n + 0.5 * std::log(kTwoPi * n));
}

// Returns x ln(x/m) + m - x >= 0, the cost of observing x if m is expected.
double Deviance(double x, double m) {
  const double d = (x - m) / m;
  return m * ((1 + d) * std::log1p(d) - d);
}

double LogBinomialTerm(double n, double p, double x) {
  if (x == 0) return n * std::log1p(-p);
  if (x == n) return n * std::log(p);
  return StirlingError(n) - StirlingError(x) - StirlingError(n - x) - Deviance(x, n * p) -
         Deviance(n - x, n * (1 - p)) + 0.5 * std::log(n / (kTwoPi * x * (n - x)));
}

// Returns the sum of the terms from x outwards, divided by the one at x. Away from the mean the
// ratios fall below 1.
double OutwardSum(double n, double p, double x, bool up) {
  const double odds = p / (1 - p);
  double sum = 1;
  double term = 1;
  while (up ? x < n : x > 0) {
    term *= up ? (n - x) / (x + 1) * odds : x / (n - x + 1) / odds;
    x += up ? 1 : -1;
    sum += term;
    if (term < 1e-17 * sum) break;
  }
  return sum;
}

double LogTail(double n, double p, double x, bool up) {
  return LogBinomialTerm(n, p, x) + std::log(OutwardSum(n, p, x, up));
}

double LogOfRest(double log_part) {
  return log_part >= 0 ? -kInfinity : std::log1p(-std::exp(log_part));
}

// Poisson probabilities of one expert's load, summed up to m, with their moments about lambda.
class TruncatedPoisson {
 public:
  explicit TruncatedPoisson(double lambda)
      : lambda_(lambda), next_(std::max(0.0, std::floor(lambda - 14 * std::sqrt(lambda) - 14))) {
    term_ = std::exp(next_ == 0 ? -lambda
                                : -StirlingError(next_) - Deviance(next_, lambda) -
                                      0.5 * std::log(kTwoPi * next_));
  }

  void SumTo(double m) {
    for (; next_ <= m; ++next_) {
      const double d = next_ - lambda_;
      double moment = term_;
      for (double& sum : moments_) {
        sum += moment;
        moment *= d;
      }
      term_ *= lambda_ / (next_ + 1);
    }
  }

  // Returns P(largest of `experts` loads <= m | they sum to N), for the m that was last summed to.
  double LargestAtMost(double choices, double experts) const {
    const double share = moments_[0];
    if (!(share > 0)) return 0;
    const double mean = moments_[1] / share;
    const double m2 = moments_[2] / share;
    const double m3 = moments_[3] / share;
    const double m4 = moments_[4] / share;
    const double variance = m2 - mean * mean;
    if (!(variance > 0)) return 0;
    const double third = m3 - 3 * mean * m2 + 2 * mean * mean * mean;
    const double fourth = m4 - 4 * mean * m3 + 6 * mean * mean * m2 - 3 * std::pow(mean, 4);
    const double z = (choices - experts * (lambda_ + mean)) / std::sqrt(experts * variance);
    const double skew = third / std::pow(variance, 1.5) / std::sqrt(experts);
    const double excess = (fourth / (variance * variance) - 3) / experts;
    const double z2 = z * z;
    const double series = 1 + skew / 6 * z * (z2 - 3) + excess / 24 * (z2 * z2 - 6 * z2 + 3) +
                          skew * skew / 72 * (z2 * z2 * z2 - 15 * z2 * z2 + 45 * z2 - 15);
    const double untruncated = std::exp(-StirlingError(choices)) / std::sqrt(choices);
    const double truncated = std::exp(-z2 / 2) / std::sqrt(experts * variance) * series;
    const double chance = std::exp(experts * std::log(share)) * truncated / untruncated;
    return chance < 0 ? 0 : chance > 1 ? 1 : chance;
  }

 private:
  double lambda_;
  double next_;
  double term_ = 0;
  double moments_[5] = {};
};

}  // namespace

double LogBinomialAtLeast(uint64_t n, double p, uint64_t m) {
  if (m == 0) return 0;
  if (m > n) return -kInfinity;
  const auto trials = static_cast<double>(n);
  const auto x = static_cast<double>(m);
  return x > trials * p ? LogTail(trials, p, x, true) : LogOfRest(LogTail(trials, p, x - 1, false));
}

double LogBinomialAtMost(uint64_t n, double p, uint64_t m) {
  if (m >= n) return 0;
  const auto trials = static_cast<double>(n);
  const auto x = static_cast<double>(m);
  return x < trials * p ? LogTail(trials, p, x, false) : LogOfRest(LogTail(trials, p, x + 1, true));
}

double LogChanceOfLargest(uint64_t choices, uint64_t experts, uint64_t m) {
  if (experts < 2) return 0;
  const auto e = static_cast<double>(experts);
  return std::min(0.0, std::log(e) + LogBinomialAtLeast(choices, 1 / e, m));
}

double ExpectedLargestOverMean(uint64_t choices, uint64_t experts) {
  if (choices == 0 || experts == 0) return kNaN;
  const auto n = static_cast<double>(choices);
  const auto e = static_cast<double>(experts);
  if (experts == 1 || choices == 1) return e;
  // E[max] = sum over m of P(max > m), which is 1 below N/E.
  const double least = std::ceil(n / e);
  TruncatedPoisson load(n / e);
  double expected = least;
  // Above this, no load of 2^32 experts is expected, and rounding errors would accumulate.
  const double most = std::min(n, n / e + 14 * std::sqrt(n / e) + 40);
  for (double m = least; m < most; ++m) {
    load.SumTo(m);
    const double above = 1 - load.LargestAtMost(n, e);
    expected += above;
    if (above < 1e-9) break;
  }
  return expected * e / n;
}

MeanInterval BlockMeanInterval(std::span<const double> values) {
  constexpr size_t kBlocks = 10;
  constexpr double kStudent99 = 3.2498355;  // two-sided, 9 degrees of freedom
  if (values.size() < kBlocks) return {kNaN, kNaN};
  double means[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) {
    const size_t begin = b * values.size() / kBlocks;
    const size_t end = (b + 1) * values.size() / kBlocks;
    means[b] = std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                               values.begin() + static_cast<std::ptrdiff_t>(end), 0.0) /
               static_cast<double>(end - begin);
  }
  const double mean = std::accumulate(means, means + kBlocks, 0.0) / kBlocks;
  double squares = 0;
  for (double m : means) squares += (m - mean) * (m - mean);
  return {mean, kStudent99 * std::sqrt(squares / (kBlocks - 1) / kBlocks)};
}

Trend LinearTrend(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 8) return {kNaN, kNaN};
  const double middle = (n - 1) / 2;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double cross = 0;
  for (size_t i = 0; i < values.size(); ++i)
    cross += (static_cast<double>(i) - middle) * (values[i] - mean);
  const double spread = n * (n * n - 1) / 12;
  const double slope = cross / spread;
  double squares = 0;
  double lagged = 0;
  double previous = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double residual = values[i] - mean - slope * (static_cast<double>(i) - middle);
    squares += residual * residual;
    lagged += residual * previous;
    previous = residual;
  }
  if (!(squares > 0)) return {slope, 0};
  // A line reduces the correlation of its residuals by about (2 + 4 phi)/n.
  const double corrected = (n * lagged / squares + 2) / (n - 4);
  const double phi = std::min(0.99, std::max(0.0, corrected));
  return {slope, std::sqrt(squares / (n - 2) / spread * (1 + phi) / (1 - phi))};
}

}  // namespace plumbline::analysis
