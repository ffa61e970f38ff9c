// Collectives as evidence: what ranks disagree on, and one example of each kind on which they
// agree.
#pragma once

#include <vector>

#include "audit/calls/agents.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// Returns "all_reduce" and the like.
const char* SiteNameOf(CallFunction function);

// Appends the evidence, sorted by step within the call's group. A call's step is its number in its
// communicator. Evidence.source is the agent.
void AddCollectives(const std::vector<ProcessCalls>& processes, const CallAgents& agents,
                    std::vector<v1::Evidence>* evidence);

}  // namespace plumbline::audit
