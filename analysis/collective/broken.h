// The finding that a collective's results are not sums of its inputs (collective/bound.h).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "analysis/collective/analysis.h"

namespace plumbline::analysis {

// Returns the finding for the first such call of the step. If there is none, returns nullopt.
std::optional<v1::Verdict> BrokenCollective(
    const std::vector<std::shared_ptr<const ReductionAnalysis>>& all);

}  // namespace plumbline::analysis
