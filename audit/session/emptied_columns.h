// Columns of tables that become empty: a loss that pandas writes as an empty cell once it is NaN.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "analysis/series/series.h"
#include "audit/readers/input/reader.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// A warning of health/loss-non-finite for each training loss, gradient norm, perplexity or
// likelihood that did, with its run. `roles`: what the user said of names.
std::vector<std::pair<std::string, v1::Verdict>> EmptiedVerdicts(
    const std::deque<InputReport>& inputs, const SeriesRoles& roles);

}  // namespace plumbline::audit
