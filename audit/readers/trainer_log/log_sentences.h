// What a log states beside its rows, in lines of their own. Pure; thread-safe.
#pragma once

#include <optional>
#include <string_view>

namespace plumbline::audit {

// "Resuming training from checkpoint-500", "successfully loaded checkpoint from ... at iteration
// 500": from here on a process that was restarted, or taken back, goes on.
bool StatesResume(std::string_view line);

// "GPU 0 has a total capacity of 79.15 GiB": bytes.
std::optional<double> MemoryLimitIn(std::string_view line);

}  // namespace plumbline::audit
