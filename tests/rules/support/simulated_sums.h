// Sums as trainers compute them, for tests of the statistics: addends of a kind of data, and the
// arithmetic of a ring or of an accumulator. Header only.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "analysis/statistics/sum_error.h"
#include "base/exact_sum.h"
#include "base/half.h"
#include "rules/analysis_names.h"

namespace plumbline::rules::testing {

// Returns n addends c (1 + spread z), z normal, c log-normal: one element over n ranks or
// micro-batches. Rounded into `t`, as they are when passed on. If `one_mean`, c is 1.
inline std::vector<double> CoherentAddends(size_t n, double spread, DType t, std::mt19937_64& rng,
                                           bool one_mean = false) {
  std::normal_distribution<double> normal;
  const double c = one_mean ? 1 : std::exp(normal(rng)) * (rng() % 2 == 0 ? 1 : -1);
  std::vector<double> x(n);
  for (double& v : x) v = RoundToFormat(c * (1 + spread * normal(rng)), t);
  return x;
}

// Returns a sequential sum, rounded into `t` at each addition.
inline double SequentialSum(const std::vector<double>& x, DType t,
                            RoundingMode mode = RoundingMode::kNearestEven) {
  double sum = x.empty() ? 0 : x[0];
  for (size_t i = 1; i < x.size(); ++i) sum = RoundToFormat(sum + x[i], t, mode);
  return sum;
}

inline SumError ErrorOfSum(double y, const std::vector<double>& x, DType out,
                           uint32_t divisor = 1) {
  ExactSum s;
  double squares = 0;
  for (double v : x) {
    s.Add(v);
    squares += v * v;
  }
  return ErrorOf(y, s, squares, out, divisor);
}

}  // namespace plumbline::rules::testing
