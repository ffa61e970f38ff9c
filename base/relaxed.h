// The memory order of counters and flags that order no other memory.
#pragma once

#include <atomic>

namespace plumbline {

inline constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace plumbline
