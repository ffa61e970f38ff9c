// Refusals of the tokens' own before a capacity refuses: experts that were hot, or that fill up,
// thin what comes to them by a draw or a rate of their own, and then take the first that are left.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::rules {

// log2 of how much likelier a draw of the kept among the candidates is than refusals of the token's
// own followed by first come first served (whose last run of refusals is long): at one rate per
// cell, or at rates that follow how full an expert is, whichever is likelier. Summed over the
// refusing cells that are evidence of their own, in the order that favours the innocent; of a large
// call the first cells.
double OwnRefusalBits(const RoutingCase& c, const Saturation& s,
                      const std::vector<TimeQueue>& queues);

}  // namespace plumbline::rules
