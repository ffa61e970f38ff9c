// Collectives that some ranks called and others did not when the job was ended: what a flight
// recorder would state.
#pragma once

#include <vector>

#include "audit/calls/agents.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// Appends one item per agent, at `step`, if all ranks of a communicator are on this host and made
// different numbers of calls on it. `seconds`: since any process made a collective. From 30 s on
// the job is blocked; before that, ranks may only have been at different places (performance/hang).
void AddHungCalls(const std::vector<ProcessCalls>& processes, const CallAgents& agents,
                  double seconds, int64_t step, std::vector<v1::Evidence>* evidence);

}  // namespace plumbline::audit
