// The findings that a collective's results are not sums of its inputs (collective/bound.h).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "analysis/collective/analysis.h"
#include "analysis/collective/stale_rank.h"

namespace plumbline::analysis {

// Returns the finding for the first such call of the step. If there is none, returns nullopt.
std::optional<v1::Verdict> BrokenCollective(
    const std::vector<std::shared_ptr<const ReductionAnalysis>>& all);

// Returns the finding for a call with a stale rank.
v1::Verdict StaleFinding(const ReductionAnalysis& a, const StaleRank& stale);

}  // namespace plumbline::analysis
