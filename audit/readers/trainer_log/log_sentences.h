// Finds statements of a log outside its rows. Pure; thread-safe.
#pragma once

#include <optional>
#include <string_view>

namespace plumbline::audit {

// True for "Resuming training from checkpoint-500", "successfully loaded checkpoint from ... at
// iteration 500": a restarted process, or one that went back, continues here.
bool StatesResume(std::string_view line);

// Returns the bytes of "GPU 0 has a total capacity of 79.15 GiB".
std::optional<double> MemoryLimitIn(std::string_view line);

}  // namespace plumbline::audit
