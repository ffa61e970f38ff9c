// Causes of drift that leave an exact mark, so that no test of the record is needed. Also
// implements CoversLess and LosesMass of cause.h.
#pragma once

#include <optional>

#include "analysis/drift/cause.h"

namespace plumbline::analysis {

// Returns the cause if one side's values are the other's in another unit, or if both sides were
// equal in the first step and never after. Else returns nothing. Pure, thread-safe.
std::optional<DriftCause> PlainCause(const DriftStatistics& statistics);

}  // namespace plumbline::analysis
