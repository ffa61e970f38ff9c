// Options and limits that the rules of updates share.
#pragma once

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

inline constexpr OptionInfo kUpdateElements = {
    .name = "elements",
    .type = OptionInfo::Type::kInteger,
    .unit = "elements",
    .default_value = "1000",
    .reason = "fewer elements show little about a tensor",
    .low = 16,
    .high = 1e9};

// If the probability under stochastic rounding is below this, stochastic rounding is excluded.
inline constexpr double kStochasticChance = 1e-5;

}  // namespace plumbline::analysis
