// A configuration that names a queue, and a recording of none.
#pragma once

#include "analysis/routing/analysis.h"

namespace plumbline::rules {

// The configuration names a queue, full experts let later tokens in, and refusals of the tokens'
// own before a queue do not explain them better. Asked where the capacity is declared, and no queue
// in time order and no known policy gives the refusals.
bool ContradictsItsQueue(const RoutingAnalysis& a);

// The finding: what it is, is not known.
v1::Verdict NoSuchQueue(const RoutingAnalysis& a);

}  // namespace plumbline::rules
