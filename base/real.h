// Names for NaN and infinity, and equality of results as a replay defines it.
#pragma once

#include <limits>

namespace plumbline {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns true if both are equal or both are NaN. +0 and -0 are equal.
constexpr bool SameResult(double a, double b) { return a == b || (a != a && b != b); }

}  // namespace plumbline
