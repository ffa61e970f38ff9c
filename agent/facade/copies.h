// Other copies of Plumbline in the process: a trainer's extension that was linked with one, or a
// Python package that contains another.
#pragma once

#include <stddef.h>

#include "agent/agent_table.h"

namespace plumbline::facade {

// Writes the path under which another copy's agent was loaded and returns true, or returns false.
// Two agents cannot coexist: both contain one protobuf, which accepts a message type once. The
// second copy uses the first one's agent if their tables agree.
bool AgentInProcess(char* path, size_t bytes);

// Fills the tables of other copies that are still empty: an agent binds to the table of the first
// copy, even if another copy opens it.
void ShareAllocator(const plumbline_allocator_t& allocator);

}  // namespace plumbline::facade
