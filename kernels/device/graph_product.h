// The sampled parts of a captured product: the work of a block of the launch, on a device and in
// tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/graph_block.h"
#include "kernels/product/gather.h"

namespace plumbline {

// Shared memory of the block.
struct PlanPlace {
  uint64_t section;
  uint64_t plan_at;
  uint64_t plan_to;
  ProductPlan plan;
};

// Runs block `number` of `blocks` of the launch. The plan is in the section, across the bus, and is
// read once per block.
template <typename Block>
PLUMB_DEVICE void GatherPlanned(const Block& block, const GraphCall& call, int threads,
                                uint32_t number, uint32_t blocks, PlanPlace* place) {
  // One thread determines whether there are a section and a plan, and where.
  block.Each([&](int thread) {
    if (thread != 0) return;
    place->section = QuerySection(call, number, true);
    const GraphWork* work = place->section == 0 ? nullptr : WorkOf(place->section);
    place->plan_at = work == nullptr ? 0 : work->plan_at;
    place->plan_to = work == nullptr ? 0 : work->plan_to;
  });
  block.Sync();
  if (place->plan_at != 0) {
    TakeDown(block, threads, PlaceIn(place->section, place->plan_at), sizeof(ProductPlan),
             &place->plan);
    unsigned char* out = PlaceIn(place->section, place->plan_to);
    const int64_t count = ProductThreads(place->plan), all = int64_t{blocks} * threads;
    block.Each([&](int thread) {
      for (int64_t i = int64_t{number} * threads + thread; i < count; i += all)
        GatherProductOne(place->plan, i, out);
    });
  }
  block.Sync();
  block.Each([&](int thread) {
    if (thread != 0) return;
    const ReplayEnd end = ReportSection(call, place->section, number, blocks);
    if (end.last) EndReported(call, place->section, end.agreed, blocks);
  });
}

}  // namespace plumbline
