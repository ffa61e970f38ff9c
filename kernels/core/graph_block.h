// Decides once for a whole block whether a replay may still write to its section (graph_slot.h). If
// each thread decided separately, threads could read different values while the slot changes, and
// their common loads or sums would be incomplete.
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

// Returns the section, or 0 if nothing may be written. `decided` is shared memory of the block. It
// is not written again before all threads have synchronised once more.
template <typename Block>
PLUMB_DEVICE uint64_t DecideSection(const Block& block, const GraphCall& call, uint64_t* decided) {
  block.Each([&](int thread) {
    if (thread == 0) *decided = MayWrite(call) ? *call.section : 0;
  });
  block.Sync();
  return *decided;
}

namespace internal {

// Copies four bytes of a struct. On the host, memcpy is used because the struct need not hold an
// integer there (strict aliasing).
PLUMB_HD inline void CopyWord(const unsigned char* from, unsigned char* to) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
#else
  __builtin_memcpy(to, from, 4);
#endif
}

}  // namespace internal

// Copies `bytes` bytes, a multiple of 4, from across the bus at once, once per block: separate
// reads of single threads cost a microsecond each. `to` is shared memory of the block.
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
