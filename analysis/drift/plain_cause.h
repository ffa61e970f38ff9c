// Causes of drift that leave an exact mark, so that no test of the record is needed. Also
// implements CoversLess and LosesMass of cause.h.
#pragma once

#include <optional>

#include "analysis/drift/cause.h"

namespace plumbline::analysis {

// Returns the cause if one side's values are the other's in another unit, or if both sides were
// equal in the first step and never after. Else returns nothing. Pure, thread-safe.
std::optional<DriftCause> PlainCause(const DriftStatistics& statistics);

// Returns an unknown cause, whose words name a temperature, if d changes with log mu beyond what
// noise causes. Other weights, which learnt more or less, also make a distribution sharper or
// flatter. Else returns nothing. Pure, thread-safe.
std::optional<DriftCause> SharperOrFlatter(const DriftStatistics& statistics);

// Returns an unknown cause, whose words name missing updates, if d^2 grew tenfold from the first
// steps to the last ones and is beyond rounding. Else returns nothing. Pure, thread-safe.
std::optional<DriftCause> GrowsFromRounding(const DriftStatistics& statistics);

}  // namespace plumbline::analysis
