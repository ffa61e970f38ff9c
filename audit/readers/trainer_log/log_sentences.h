// Finds sentences in a log outside of its rows. Pure functions; thread-safe.
#pragma once

#include <optional>
#include <string_view>

namespace plumbline::audit {

// True for "Resuming training from checkpoint-500", "successfully loaded checkpoint from ... at
// iteration 500". From such a line on, a restarted process, or one that went back, continues.
bool StatesResume(std::string_view line);

// Returns the bytes in "GPU 0 has a total capacity of 79.15 GiB".
std::optional<double> MemoryLimitIn(std::string_view line);

}  // namespace plumbline::audit
