// Finds columns of tables that become empty: pandas writes NaN as an empty cell.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "analysis/series/series.h"
#include "audit/readers/input/reader.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// Returns, with its run, a warning of health/loss-non-finite for each training loss, gradient norm,
// perplexity or likelihood whose column became empty. `roles`: the roles that the user set.
std::vector<std::pair<std::string, v1::Verdict>> EmptiedVerdicts(
    const std::deque<InputReport>& inputs, const SeriesRoles& roles);

}  // namespace plumbline::audit
