// One decision for a whole block: may a replay still write to its section (graph_slot.h)? Threads
// that asked one by one could be told differently when the slot changes meanwhile, and what they
// load or add up together would then be half there.
//
// A template over the block, which on a device is one thread of it and in tests all of them. A
// Block has
//   Each(f)   f(thread) for every thread this stands for
//   Sync()    waits for all of them
#pragma once

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

}  // namespace plumbline
