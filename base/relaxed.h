// The memory order of counters and flags that order nothing else.
#pragma once

#include <atomic>

namespace plumbline {

inline constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace plumbline
