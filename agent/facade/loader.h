// Loads libplumbline_agent.so into the process, once, on the first due call.
#pragma once

#include "agent/agent_table.h"

namespace plumbline::facade {

// Returns the agent's table, and loads the agent with the first call. Returns nullptr if it is not
// available; this thread's error text gives the reason, and standard error has reported it once.
// Thread-safe.
const plumbline_agent_table_t* Agent();

}  // namespace plumbline::facade
