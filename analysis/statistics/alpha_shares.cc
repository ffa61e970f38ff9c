#include "analysis/statistics/alpha_shares.h"

#include <cmath>
#include <numbers>

namespace plumbline::analysis {

double ShareOfNumber(uint64_t number) {
  const double n = static_cast<double>(number) + 1;
  return 6 / (std::numbers::pi * std::numbers::pi * n * n);
}

double ShareOfRole(v1::Role role) {
  const int number = static_cast<int>(role);
  if (role == v1::ROLE_TRAINER) return 1.0 / 2;
  if (role == v1::ROLE_ROLLOUT) return 1.0 / 4;
  if (role == v1::ROLE_UNSPECIFIED) return 1.0 / 8;
  return std::ldexp(1.0, -number - 1);  // 3: a sixteenth
}

}  // namespace plumbline::analysis
