// Finds causes of drift that are visible only in some tokens, or in the form of the values: a shift
// by one token, a 16-bit grid, the first tokens of responses, one worker, the value of the
// likeliest token instead of the sampled one. Each function returns nothing if its mark is absent.
// Pure functions; thread-safe.
#pragma once

#include <optional>

#include "analysis/drift/cause.h"

namespace plumbline::analysis {

// Finds values that belong to the token before or after, on all workers or on one.
std::optional<DriftCause> ShiftedCause(const DriftStatistics& statistics);
// Finds values that were rounded to 16 bits, on one side or both, or logits that were.
std::optional<DriftCause> RoundedCause(const DriftStatistics& statistics);
// Finds values that were truncated to 16 bits towards or away from 0, so that d has one sign.
std::optional<DriftCause> CutCause(const DriftStatistics& statistics);
std::optional<DriftCause> FirstTokensCause(const DriftStatistics& statistics);
std::optional<DriftCause> OneWorkerCause(const DriftStatistics& statistics);
std::optional<DriftCause> LikeliestCause(const DriftStatistics& statistics);

}  // namespace plumbline::analysis
