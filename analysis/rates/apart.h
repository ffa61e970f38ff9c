// Ranks that were given different rates in one step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plumbline::rules {

// Of the larger one: libraries differ in a last place.
inline constexpr double kRatesApart = 1e-6;

// Values of one step: by the series' name, then by rank, ascending. A name without values says
// nothing.
using RatesOfStep = std::map<std::string, std::vector<std::pair<uint32_t, double>>>;

// Two ranks whose rates of one group are apart.
struct ApartRates {
  std::string op;
  uint32_t low_rank = 0, high_rank = 0;
  double low = 0, high = 0;
};

// The first group, by name, whose finite values are more than kRatesApart apart; nullopt: none is.
std::optional<ApartRates> FindApart(const RatesOfStep& rates);

// The lowest rank with a finite value, and its largest one in size; nullopt: there is none.
std::optional<std::pair<uint32_t, double>> LargestRate(const RatesOfStep& rates);

}  // namespace plumbline::rules
