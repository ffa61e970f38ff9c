// Other copies of Plumbline in the process: a trainer's extension that was linked with one, a
// Python package that brings another.
#pragma once

#include <stddef.h>

#include "agent/agent_table.h"

namespace plumbline::facade {

// The path under which another copy's agent was loaded, or false. Two agents cannot be: they carry
// one protobuf, which takes a message type once. Whoever comes second goes on with the first one's,
// if their tables agree.
bool AgentInProcess(char* path, size_t bytes);

// To the other copies' tables that are still empty: an agent binds to the first copy's, whoever
// opens it.
void ShareAllocator(const plumbline_allocator_t& allocator);

}  // namespace plumbline::facade
