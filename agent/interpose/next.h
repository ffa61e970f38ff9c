// Finds the function that a caller would have reached without the interposer.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/call_table.h"

namespace plumbline::interpose {

// The targets that were found, by (return address, function). Lock-free.
struct Target {
  std::atomic<uintptr_t> key;
  std::atomic<void*> function;
};
constexpr uint32_t kTargets = 4096;  // a power of two
extern Target targets[kTargets];

// Finds the target, and keeps it if the cache has a free place. Preserves errno. If no object has
// the symbol, ends the process with status 127, as the dynamic linker does.
void* FindNext(uintptr_t key, const char* name, void* caller);

inline uint32_t PlaceOf(uintptr_t key) {
  return static_cast<uint32_t>((key * 0x9e37'79b9'7f4a'7c15u) >> 40) & (kTargets - 1);
}

// Addresses of a process have at most 56 bits, so the function's number fits above them.
inline void* NextOf(CallFunction function, const char* name, void* caller) {
  const uintptr_t key =
      reinterpret_cast<uintptr_t>(caller) ^ (static_cast<uintptr_t>(function) << 56);
  const Target& at = targets[PlaceOf(key)];
  if (__builtin_expect(at.key.load(std::memory_order_relaxed) == key, 1)) {
    void* found = at.function.load(std::memory_order_acquire);
    if (__builtin_expect(found != nullptr, 1)) return found;
  }
  return FindNext(key, name, caller);
}

}  // namespace plumbline::interpose
