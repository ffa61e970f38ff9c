// Sums over clusters that need only totals but give valid standard errors.
//
// A cluster (a sequence) is a vector v of K sums over its tokens. The influence function of every
// estimate here is linear in v: c . v, with coefficients c that are known at the end. Its variance
// by the sandwich is sum_s (c . v_s)^2 = c' (sum_s v_s v_s') c, so only sum_s v_s v_s' must be
// kept. Memory is K^2 for any number of sequences.
//
// Values are logarithms near 0 whose deviations are at least as large as their means. So plain sums
// in fp64 lose about log10 of (mean / deviation)^2 of 16 digits. Callers must pass x and y as
// differences (d, log pi + H), never as totals far from 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

template <size_t K>
class ClusterSums {
 public:
  using Vector = std::array<double, K>;

  void Add(const Vector& v) {
    ++clusters_;
    for (size_t i = 0; i < K; ++i) {
      total_[i] += v[i];
      for (size_t j = 0; j <= i; ++j) outer_[i * K + j] += v[i] * v[j];
    }
  }

  void Merge(const ClusterSums& other) {
    clusters_ += other.clusters_;
    for (size_t i = 0; i < K; ++i) total_[i] += other.total_[i];
    for (size_t i = 0; i < K * K; ++i) outer_[i] += other.outer_[i];
  }

  uint64_t clusters() const { return clusters_; }
  const Vector& total() const { return total_; }

  // sum_s (c . v_s)^2
  double Quadratic(const Vector& c) const {
    double sum = 0;
    for (size_t i = 0; i < K; ++i) {
      for (size_t j = 0; j < i; ++j) sum += 2 * c[i] * c[j] * outer_[i * K + j];
      sum += c[i] * c[i] * outer_[i * K + i];
    }
    return sum > 0 ? sum : 0;
  }

  void Persist(Archive& a) { a(clusters_, total_, outer_); }

 private:
  uint64_t clusters_ = 0;
  Vector total_{};
  std::array<double, K * K> outer_{};  // lower triangle
};

}  // namespace plumbline::analysis
