// Corrects measured multipliers for the selection of those that looked good: a normal distribution
// of changes with unknown mean and spread, on a grid.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace plumbline::ledger {

struct Measured {
  std::vector<double> y;           // ln multipliers, at least one
  std::vector<double> covariance;  // of y: [n, n]
  std::vector<bool> kept;
  std::optional<int64_t> tried;  // at least n; nullopt if it is not known how many were tried
};

struct Selected {
  std::vector<double> s;  // expected ln multipliers
  double sum = 0;         // M, over the kept ones
  double variance = 0;    // V0, of that sum
  double shared = 0;      // u, the variance common to any two
};

Selected Select(const Measured& measured);

// Returns ln of the normal distribution function, accurate in the far tail too.
double LogNormalCdf(double z);

}  // namespace plumbline::ledger
