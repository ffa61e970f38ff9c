// The wealth of several bets: a mean of products. If each factor has conditional mean at most 1,
// the wealth is a non-negative supermartingale. Products are kept as logarithms, so that none is
// clamped.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/archive.h"

namespace plumbline::analysis {

// The mean of N products. Factors are multiplied as doubles and moved to logarithms before they can
// leave the range of a double. Not thread-safe.
template <size_t N>
class Wealth {
 public:
  // Multiplies one factor into each bet. Each factor is 0 or within [kLeast, 1 / kLeast].
  static constexpr double kLeast = 1e-9;
  void Multiply(const std::array<double, N>& factors) {
    bool far = false;
    for (size_t j = 0; j < N; ++j) {
      product_[j] *= factors[j];
      far |= product_[j] < kFar || product_[j] > 1 / kFar;
    }
    if (far) Flush();
  }
  // The same for factors of any size, given as logarithms. If a logarithm is -infinity, its bet is
  // lost permanently.
  void Add(const std::array<double, N>& logs) {
    for (size_t j = 0; j < N; ++j) log_[j] += logs[j];
  }
  void AddToAll(double log_factor) {
    for (size_t j = 0; j < N; ++j) log_[j] += log_factor;
  }

  // Returns ln of each product.
  std::array<double, N> logs() const {
    std::array<double, N> logs;
    for (size_t j = 0; j < N; ++j) logs[j] = log_[j] + std::log(product_[j]);
    return logs;
  }
  // Returns ln of the mean of the products. If all are lost, returns -infinity.
  double log() const { return LogMean(logs()); }
  void Persist(Archive& a) { a(log_, product_); }

  static double LogMean(const std::array<double, N>& logs) {
    double top = -std::numeric_limits<double>::infinity();
    for (const double l : logs) top = l > top ? l : top;
    if (!(std::fabs(top) < std::numeric_limits<double>::infinity())) return top;
    double sum = 0;
    for (size_t j = 0; j < N; ++j) sum += std::exp(logs[j] - top);
    return top + std::log(sum / static_cast<double>(N));
  }

 private:
  // After one more factor the product is still a normal double.
  static constexpr double kFar = 1e-290;

  void Flush() {
    for (size_t j = 0; j < N; ++j) {
      log_[j] += std::log(product_[j]);
      product_[j] = 1;
    }
  }

  std::array<double, N> log_{};
  std::array<double, N> product_ = [] {
    std::array<double, N> ones;
    ones.fill(1);
    return ones;
  }();
};

}  // namespace plumbline::analysis
