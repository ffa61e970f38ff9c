// Matrix products of cuBLAS and cuBLASLt as evidence: what their calls request.
#pragma once

#include <vector>

#include "audit/calls/agents.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// Appends one item for each kind of call of each process, at step 0. Evidence.source is the agent.
void AddProducts(const std::vector<ProcessCalls>& processes, const CallAgents& agents,
                 std::vector<v1::Evidence>* evidence);

}  // namespace plumbline::audit
