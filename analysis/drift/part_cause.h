// Causes of drift that show in some tokens or in the form of the values: a 16-bit grid, the first
// tokens of responses, one worker, the likeliest token's value instead of the sampled one's. Each
// returns nothing if its mark is absent. Pure, thread-safe.
#pragma once

#include <optional>

#include "analysis/drift/cause.h"

namespace plumbline::analysis {

// Values rounded to 16 bits, on one side or both, or logits that were.
std::optional<DriftCause> RoundedCause(const DriftStatistics& statistics);
// Values cut to 16 bits towards or away from 0, so that d has one sign.
std::optional<DriftCause> CutCause(const DriftStatistics& statistics);
std::optional<DriftCause> FirstTokensCause(const DriftStatistics& statistics);
std::optional<DriftCause> OneWorkerCause(const DriftStatistics& statistics);
std::optional<DriftCause> LikeliestCause(const DriftStatistics& statistics);

}  // namespace plumbline::analysis
