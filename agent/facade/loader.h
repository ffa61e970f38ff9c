// Brings libplumbline_agent.so into the process, once, on the first due call.
#pragma once

#include "agent/agent_table.h"

namespace plumbline::facade {

// The agent's table, loading it if this is the first call. nullptr: not available; this thread's
// error text says why, and standard error has been told once. Thread-safe.
const plumbline_agent_table_t* Agent();

}  // namespace plumbline::facade
