// The two doubles that are no numbers by name, and equality of results as a replay means it.
#pragma once

#include <limits>

namespace plumbline {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Equal, or neither is a number. +0 and -0 are equal.
constexpr bool SameResult(double a, double b) { return a == b || (a != a && b != b); }

}  // namespace plumbline
