// Typical runs with few points: fine-tuning, runs that fail immediately, runs that learn nothing,
// evaluations that overfit. Fixed seeds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace plumbline::analysis::testing {

struct ShortCurve {
  std::vector<double> values;
  std::vector<double> rate;  // Empty if not logged.
};

// Return the names of healthy and of faulty families.
std::span<const char* const> HealthyShort();
std::span<const char* const> BrokenShort();
// Returns curve number `seed` of a family with `points` points. Throws std::runtime_error if the
// family is unknown.
ShortCurve ShortCurveOf(const std::string& family, size_t points, uint64_t seed);

}  // namespace plumbline::analysis::testing
