#include "analysis/rates/apart.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace plumbline::analysis {

std::optional<ApartRates> FindApart(const RatesOfStep& rates) {
  for (const auto& [op, values] : rates) {
    ApartRates apart{op, 0, 0, HUGE_VAL, -HUGE_VAL};
    for (const auto& [rank, value] : values) {
      if (!std::isfinite(value)) continue;
      if (value < apart.low) std::tie(apart.low, apart.low_rank) = std::pair(value, rank);
      if (value > apart.high) std::tie(apart.high, apart.high_rank) = std::pair(value, rank);
    }
    const double largest = std::max(std::fabs(apart.low), std::fabs(apart.high));
    if (std::isfinite(largest) && apart.high - apart.low > kRatesApart * largest) return apart;
  }
  return std::nullopt;
}

std::optional<std::pair<uint32_t, double>> LargestRate(const RatesOfStep& rates) {
  std::optional<std::pair<uint32_t, double>> largest;
  for (const auto& [op, values] : rates) {
    for (const auto& [rank, value] : values) {
      if (!std::isfinite(value) || (largest && rank > largest->first)) continue;
      const double size = std::fabs(value);
      if (!largest || rank < largest->first || size > largest->second) largest = {rank, size};
    }
  }
  return largest;
}

}  // namespace plumbline::analysis
