// One decision for a whole block: may a replay still write to its section (graph_slot.h)? Threads
// that asked one by one could be told differently when the slot changes meanwhile, and what they
// load or add up together would then be half there.
//
// A template over the block, which on a device is one thread of it and in tests all of them. A
// Block has
//   Each(f)   f(thread) for every thread this stands for
//   Sync()    waits for all of them
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/core/graph_slot.h"

namespace plumbline {

// The section, or 0: nothing may be written. `decided` is the block's common memory, and not
// written again before all have synchronised once more.
template <typename Block>
PLUMB_DEVICE uint64_t DecideSection(const Block& block, const GraphCall& call, uint64_t* decided) {
  block.Each([&](int thread) {
    if (thread == 0) *decided = MayWrite(call) ? *call.section : 0;
  });
  block.Sync();
  return *decided;
}

namespace internal {

// Four bytes of a struct: a host's compiler is told that they are no integer of its own.
PLUMB_HD inline void CopyWord(const unsigned char* from, unsigned char* to) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
#else
  __builtin_memcpy(to, from, 4);
#endif
}

}  // namespace internal

// Takes `bytes` down from across the bus, a multiple of 4, at once and once a block: what one
// thread after the other reads there costs a microsecond each. `to` is the block's common memory.
template <typename Block>
PLUMB_DEVICE void TakeDown(const Block& block, int threads, const void* from, size_t bytes,
                           void* to) {
  block.Each([&](int thread) {
    for (size_t i = 4 * static_cast<size_t>(thread); i < bytes;
         i += 4 * static_cast<size_t>(threads)) {
      internal::CopyWord(static_cast<const unsigned char*>(from) + i,
                         static_cast<unsigned char*>(to) + i);
    }
  });
  block.Sync();
}

}  // namespace plumbline
