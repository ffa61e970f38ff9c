// The options of plumbline_open, completed from the environment.
#pragma once

#include "agent/agent_table.h"

namespace plumbline::facade {

// Fills *resolved. Its strings point into `given`, the environment or static storage and must be
// copied by the caller. Returns INVALID_ARGUMENT, with the thread's error text naming the option or
// variable and what was expected. `given` may be NULL.
plumbline_status_t ResolveOptions(const plumbline_open_options_t* given,
                                  plumbline_agent_open_t* resolved);

// Checks 0 <= rank < world_size and the upper limit; otherwise returns INVALID_ARGUMENT, with the
// text.
plumbline_status_t CheckRanks(const char* call, int64_t rank, int64_t world_size);

}  // namespace plumbline::facade
