// Sums over clusters that leave only totals behind and still give honest standard errors.
//
// A cluster (a sequence) is a vector v of K sums of its tokens. An estimate's influence function
// is, for every estimate here, linear in v: c . v with coefficients c known at the end. Its
// variance by the sandwich is then sum_s (c . v_s)^2 = c' (sum_s v_s v_s') c, and sum_s v_s v_s' is
// all that must be kept. Memory is K^2, whatever the number of sequences.
//
// Values are logarithms near 0 with deviations of the size of their means or above, so that plain
// sums in fp64 lose about log10 of (mean / deviation)^2 digits of 16: callers give x and y as
// differences (d, log pi + H), never far-off totals.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::rules {

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

}  // namespace plumbline::rules
