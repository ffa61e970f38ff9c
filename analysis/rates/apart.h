// Detects ranks with different rates in one step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plumbline::analysis {

// Relative to the larger one, because libraries differ in the last place.
inline constexpr double kRatesApart = 1e-6;

// Values of one step: by the series' name, then by rank, ascending. A name without values is
// ignored.
using RatesOfStep = std::map<std::string, std::vector<std::pair<uint32_t, double>>>;

// Two ranks whose rates of one group differ.
struct ApartRates {
  std::string op;
  uint32_t low_rank = 0, high_rank = 0;
  double low = 0, high = 0;
};

// Returns the first group, by name, whose finite values differ by more than kRatesApart. If there
// is none, returns nullopt.
std::optional<ApartRates> FindApart(const RatesOfStep& rates);

// Returns the lowest rank with a finite value, and its largest value in magnitude. If there is
// none, returns nullopt.
std::optional<std::pair<uint32_t, double>> LargestRate(const RatesOfStep& rates);

}  // namespace plumbline::analysis
