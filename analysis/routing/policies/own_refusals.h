// Models refusals that do not come from the capacity. Experts that are hot, or that fill up, drop
// some of their tokens at random or at a rate per expert. Then they take the first remaining
// tokens.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::analysis {

// Returns log2 of the likelihood ratio of two models: a random draw of the kept among the
// candidates, against own refusals followed by first come first served (whose last run of refusals
// is long). The own refusals have one rate per cell, or rates that depend on how full an expert is,
// whichever is likelier. The result is summed over the refusing cells that are independent
// evidence, in the order that favours the innocent explanation. In a large call, uses the first
// cells only.
double OwnRefusalBits(const RoutingCase& c, const Saturation& s,
                      const std::vector<TimeQueue>& queues);

}  // namespace plumbline::analysis
