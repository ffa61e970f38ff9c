// NVIDIA_TF32_OVERRIDE, which NVIDIA's libraries read once.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/call_table.h"

namespace plumbline::interpose {

// Returns kCallOverride if the environment forbids tf32, else 0.
inline uint32_t TF32Override() {
  static std::atomic<uint32_t> known;  // 0: not read, else 1 + the result
  uint32_t value = known.load(std::memory_order_relaxed);
  if (__builtin_expect(value == 0, 0)) {
    const char* text = getenv("NVIDIA_TF32_OVERRIDE");
    value = 1 + (text != nullptr && strcmp(text, "0") == 0 ? uint32_t{kCallOverride} : 0);
    known.store(value, std::memory_order_relaxed);
  }
  return value - 1;
}

}  // namespace plumbline::interpose
