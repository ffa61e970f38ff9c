// What plumbline_open was told, completed from the environment.
#pragma once

#include "agent/agent_table.h"

namespace plumbline::facade {

// Fills *resolved; its strings point into `given`, the environment or static storage and must be
// copied by the caller. INVALID_ARGUMENT, with the thread's error text, names the option or
// variable and what was expected. `given` may be NULL.
plumbline_status_t ResolveOptions(const plumbline_open_options_t* given,
                                  plumbline_agent_open_t* resolved);

// 0 <= rank < world_size, and not more than there can be; else INVALID_ARGUMENT, with the text.
plumbline_status_t CheckRanks(const char* call, int64_t rank, int64_t world_size);

}  // namespace plumbline::facade
