// What is left of measured multipliers once it is said that the kept ones are those that looked
// good: a normal law of changes with unknown mean and spread, on a grid.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace plumbline::ledger {

struct Measured {
  std::vector<double> y;           // ln multipliers, at least one
  std::vector<double> covariance;  // of y: [n, n]
  std::vector<bool> kept;
  std::optional<int64_t> tried;  // at least n; none: nobody said how many were tried
};

struct Selected {
  std::vector<double> s;  // expected ln multipliers
  double sum = 0;         // M, of the kept
  double variance = 0;    // V0, of that sum
  double shared = 0;      // u, the variance that any two have in common
};

Selected Select(const Measured& measured);

// ln of the normal distribution function; right in the far tail too.
double LogNormalCdf(double z);

}  // namespace plumbline::ledger
