// The sampled elements of a captured call (core/graph_slot.h) leave the device in its last launch.
// Arithmetic that kernels and their emulation share.
#pragma once

#include <cstdint>

#include "kernels/core/graph_block.h"
#include "kernels/core/graph_slot.h"
#include "kernels/sample/batch.h"

namespace plumbline {

// A block's common memory.
struct DeliverPlace {
  uint64_t decided;
  GraphWork work;
  GatherItem items[kGraphGathers];
};

// A section that was given up under the replay may hold anything by now.
PLUMB_HD inline uint32_t GathersOf(const GraphWork& work) {
  return work.gathers <= kGraphGathers ? work.gathers : 0;
}

// One of `threads` threads' part, of a section that may be written.
PLUMB_HD inline void GatherElements(const DeliverPlace& place, uint64_t section, int64_t thread,
                                    int64_t threads) {
  const GraphWork& work = place.work;
  const uint32_t count = GathersOf(work);
  if (count == 0) return;
  const auto* indices = reinterpret_cast<const uint64_t*>(PlaceIn(section, work.gather_at) +
                                                          count * sizeof(GatherItem));
  for (int64_t i = thread; i < work.samples; i += threads) {
    const GatherItem& item = place.items[ItemOfSpan(place.items, static_cast<int>(count), i)];
    GatherOne(item, i - item.first_span, indices[i], PlaceIn(section, work.gathered_at));
  }
}

// The last launch of a captured call, as block `number` of `blocks`: results (`words` of four
// bytes; block 0's) and elements leave the device, and when all blocks are done the slot moves on.
template <typename Block>
PLUMB_DEVICE void DeliverReplay(const Block& block, const GraphCall& call, int threads,
                                uint32_t number, uint32_t blocks, uint32_t* results, uint64_t words,
                                DeliverPlace* place) {
  const uint64_t open = DecideSection(block, call, &place->decided);
  if (open != 0) {
    TakeDown(block, threads, WorkOf(open), sizeof(GraphWork), &place->work);
    TakeDown(block, threads, PlaceIn(open, place->work.gather_at),
             GathersOf(place->work) * sizeof(GatherItem), place->items);
  }
  const int64_t all = int64_t{blocks} * threads;
  block.Each([&](int thread) {
    const auto of_results = static_cast<uint64_t>(thread);
    const int64_t of_all = int64_t{number} * threads + thread;
    if (open != 0) {
      if (number == 0) {
        PutResults(place->work, open, results, words, of_results, static_cast<uint64_t>(threads));
      }
      GatherElements(*place, open, of_all, all);
      CopyRows(place->work, open, of_all, all);
    }
    if (number == 0 && *call.section != 0)
      ClearResults(results, words, of_results, static_cast<uint64_t>(threads));
  });
  block.Sync();
  block.Each([&](int thread) {
    if (thread == 0 && internal::ArriveLast(call.arrived, blocks)) EndReplay(call);
  });
}

}  // namespace plumbline
