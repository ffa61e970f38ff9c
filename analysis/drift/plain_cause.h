// Finds causes of drift that leave an exact mark, so that no test of the record is needed. Also
// implements CoversLess and LosesMass of cause.h.
#pragma once

#include <optional>

#include "analysis/drift/cause.h"

namespace plumbline::analysis {

// Returns the cause if one side has the other's values in another unit, or if both sides were equal
// in the first step and never again. Otherwise returns nothing. Pure function; thread-safe.
std::optional<DriftCause> PlainCause(const DriftStatistics& statistics);

// If d depends on log mu more than noise explains, returns an unknown cause whose text names a
// temperature. Other weights, which learnt more or less, also make a distribution sharper or
// flatter. Otherwise returns nothing. Pure function; thread-safe.
std::optional<DriftCause> SharperOrFlatter(const DriftStatistics& statistics);

// If d^2 grew tenfold from the first steps to the last ones and exceeds rounding errors, returns an
// unknown cause whose text names missing updates. Otherwise returns nothing. Pure function;
// thread-safe.
std::optional<DriftCause> GrowsFromRounding(const DriftStatistics& statistics);

}  // namespace plumbline::analysis
