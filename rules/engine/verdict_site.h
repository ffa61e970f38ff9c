// Where a verdict belongs, as far as its rule did not say.
#pragma once

#include "plumbline/v1/finding.pb.h"
#include "rules/engine/run_state.h"

namespace plumbline::rules {

// `step`: what was judged; nullptr: the run as a whole, or one of its steps. A rule that named
// layer, steps or ranks keeps them.
void FillSite(const RunState& state, const SiteStep* step, v1::FindingSite* site);

}  // namespace plumbline::rules
