// Ranks that were given different rates in one step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace plumbline::rules {

// Of the larger one: libraries differ in a last place.
inline constexpr double kRatesApart = 1e-6;

// Values of one step: by the series' name, then by rank.
using RatesOfStep = std::map<std::string, std::map<uint32_t, double>>;

// Two ranks whose rates of one group are apart.
struct ApartRates {
  std::string op;
  uint32_t low_rank = 0, high_rank = 0;
  double low = 0, high = 0;
};

// The first group, by name, whose finite values are more than kRatesApart apart; nullopt: none is.
std::optional<ApartRates> FindApart(const RatesOfStep& rates);

}  // namespace plumbline::rules
