// Detects a configuration that names a queue although the recording shows none.
#pragma once

#include "analysis/routing/analysis.h"

namespace plumbline::analysis {

// Returns true if the configuration names a queue, but full experts admit later tokens, and own
// refusals before a queue do not explain them better. Only tested if the capacity is declared, and
// no queue in time order and no known policy gives the refusals.
bool ContradictsItsQueue(const RoutingAnalysis& a);

// Returns the finding that the real policy is not known.
v1::Verdict NoSuchQueue(const RoutingAnalysis& a);

}  // namespace plumbline::analysis
