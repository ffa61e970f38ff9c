// The finding that a collective's results are no sums of its inputs (collective/bound.h).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "analysis/collective/analysis.h"

namespace plumbline::rules {

// Of the first call of the step of which it is true; nullopt: of none.
std::optional<v1::Verdict> BrokenCollective(
    const std::vector<std::shared_ptr<const ReductionAnalysis>>& all);

}  // namespace plumbline::rules
