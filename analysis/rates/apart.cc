#include "analysis/rates/apart.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace plumbline::rules {

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

}  // namespace plumbline::rules
