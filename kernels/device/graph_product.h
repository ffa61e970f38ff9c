// A captured product's sampled parts: what a block of the launch does, on a device and in tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/graph_block.h"
#include "kernels/product/gather.h"

namespace plumbline {

// The block's common memory.
struct PlanPlace {
  uint64_t section;
  uint64_t plan_at;
  uint64_t plan_to;
};

// The plan stands in the section, across the bus: it is read once a block, into `plan`. The block's
// threads are `first`, `first` + 1, ... of `all` that share the work, `threads` of them.
template <typename Block>
PLUMB_DEVICE void GatherPlanned(const Block& block, const GraphCall& call, int threads,
                                int64_t first, int64_t all, PlanPlace* place, ProductPlan* plan) {
  if (DecideSection(block, call, &place->section) == 0) return;
  // Is there a plan, and where? One thread's word again.
  block.Each([&](int thread) {
    if (thread != 0) return;
    const GraphWork& work = *WorkOf(place->section);
    place->plan_at = work.plan_at;
    place->plan_to = work.plan_to;
  });
  block.Sync();
  if (place->plan_at == 0) return;
  TakeDown(block, threads, PlaceIn(place->section, place->plan_at), sizeof(ProductPlan), plan);
  unsigned char* out = PlaceIn(place->section, place->plan_to);
  const int64_t count = ProductThreads(*plan);
  block.Each([&](int thread) {
    for (int64_t i = first + thread; i < count; i += all) GatherProductOne(*plan, i, out);
  });
}

}  // namespace plumbline
