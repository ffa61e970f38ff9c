// Runs of a few points, as people paste them: fine-tunings, runs that are ruined at once, runs that
// learn nothing, evaluations that overfit. Fixed seeds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace plumbline::rules::testing {

struct ShortCurve {
  std::vector<double> values;
  std::vector<double> rate;  // empty: not logged
};

// Names of healthy families, and of faulty ones.
std::span<const char* const> HealthyShort();
std::span<const char* const> BrokenShort();
// The curve number `seed` of a family, of so many points. Throws std::runtime_error of an unknown
// family.
ShortCurve ShortCurveOf(const std::string& family, size_t points, uint64_t seed);

}  // namespace plumbline::rules::testing
