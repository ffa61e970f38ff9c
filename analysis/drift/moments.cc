#include "analysis/drift/moments.h"

#include <algorithm>
#include <cmath>

#include "base/real.h"

namespace plumbline::analysis {
namespace {

const std::array<double, 4> kLogTails = {std::log(1.1), std::log(2.0), std::log(5.0),
                                         std::log(100.0)};
const double kLogFourth = std::log(1.25);

double LogAdd(double a, double b) {
  const double top = std::max(a, b);
  if (top == -kInfinity) return top;
  return top + std::log1p(std::exp(std::min(a, b) - top));
}

}  // namespace

void LogSum::AddScaled(double top, double scaled) {
  if (top > top_) {
    scaled_ = scaled_ == 0 ? scaled : scaled_ * std::exp(top_ - top) + scaled;
    top_ = top;
  } else {
    scaled_ += scaled * std::exp(top - top_);
  }
}

void LogSum::Add(double x) {
  if (std::fabs(x) <= kPlain) {
    plain_ += std::exp(x);
  } else {
    AddScaled(x, 1);
  }
}

void LogSum::Merge(const LogSum& other) {
  plain_ += other.plain_;
  if (other.scaled_ > 0) AddScaled(other.top_, other.scaled_);
}

double LogSum::Log() const {
  const double rest = scaled_ > 0 ? top_ + std::log(scaled_) : -kInfinity;
  return plain_ > 0 ? LogAdd(std::log(plain_), rest) : rest;
}

void DriftCell::Merge(const DriftCell& other) {
  if (other.count == 0) return;
  const double n = static_cast<double>(count), m = static_cast<double>(other.count);
  const double delta = other.mean - mean;
  mean += delta * (m / (n + m));
  m2 += other.m2 + delta * delta * (n * m / (n + m));
  count += other.count;
}

double DriftCell::variance() const {
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : m2 / static_cast<double>(count);
}

double DriftCell::mean_square() const { return variance() + mean * mean; }

double K3(double d) {
  // Below a quarter, the next term of the series is under 2e-16 of the sum.
  if (std::fabs(d) < 0.25) {
    double tail = 1;
    for (int k = 13; k >= 3; --k) tail = 1 + d / k * tail;
    return d * d / 2 * tail;
  }
  return std::exp(d) - 1 - d;
}

void DriftMoments::Add(double d) {
  if (!std::isfinite(d)) {
    ++non_finite_;
    return;
  }
  cell_.Add(d);
  const double size = std::fabs(d);
  if (size < LogSum::kPlain / 2) {
    const double k3 = K3(d);
    const double ratio = size < 0.25 ? 1 + (d + k3) : std::exp(d);
    ratio_.AddPlain(ratio);
    ratio_squared_.AddPlain(ratio * ratio);
    k3_ += k3;
  } else {
    ratio_.Add(d);
    ratio_squared_.Add(2 * d);
    if (d > 0) {
      k3_large_.Add(d);
    } else {
      k3_ += K3(d);
    }
  }
  abs_ += size;
  bounded_ += std::min(d * d, 0.25);
  if (size <= kLogTails[0]) return;
  std::array<uint64_t, 4>& side = d > 0 ? above_ : below_;
  for (size_t i = 0; i < kLogTails.size() && size > kLogTails[i]; ++i) ++side[i];
  if (d > kLogFourth) ++above_fourth_;
}

void DriftMoments::Merge(const DriftMoments& other) {
  cell_.Merge(other.cell_);
  non_finite_ += other.non_finite_;
  ratio_.Merge(other.ratio_);
  ratio_squared_.Merge(other.ratio_squared_);
  k3_large_.Merge(other.k3_large_);
  k3_ += other.k3_;
  abs_ += other.abs_;
  bounded_ += other.bounded_;
  for (size_t i = 0; i < kTails.size(); ++i) {
    above_[i] += other.above_[i];
    below_[i] += other.below_[i];
  }
  above_fourth_ += other.above_fourth_;
}

double DriftMoments::log_k3() const {
  if (count() == 0) return kNaN;
  const double plain = k3_ > 0 ? std::log(k3_) : -kInfinity;
  return LogAdd(plain, k3_large_.Log()) - std::log(static_cast<double>(count()));
}

double DriftMoments::k3() const { return std::exp(log_k3()); }

double DriftMoments::tail_share(size_t i) const {
  if (count() == 0) return kNaN;
  return static_cast<double>(above_[i] + below_[i]) / static_cast<double>(count());
}

double DriftMoments::bounded_square() const {
  return count() == 0 ? kNaN : bounded_ / static_cast<double>(count());
}

double DriftMoments::log_ess_share() const {
  if (count() == 0) return kNaN;
  const double n = static_cast<double>(count());
  const double log_sum = ratio_.Log(), log_squares = ratio_squared_.Log();
  const double log_mean = log_sum - std::log(n), log_square = log_squares - std::log(n);
  // Variance of the ratio over its squared mean. The mean itself is 1, except for chance.
  const double spread = std::expm1(std::max(log_square - 2 * log_mean, 0.0));
  const double off = -std::expm1(-log_mean);  // (mean - 1) / mean
  if (!(off * off * n > 16 * spread)) return -std::log1p(spread);
  if (log_mean > 0) return -log_square;
  // A token that was not drawn is added, with weight n (1 - mean).
  return -LogAdd(log_square, std::log(n) + 2 * std::log(-std::expm1(log_mean)));
}

double DriftMoments::ess_share() const { return std::exp(log_ess_share()); }

}  // namespace plumbline::analysis
