// A captured call (core/graph_slot.h) whose replay is one launch: the work of each block before and
// after it measures. Arithmetic that kernels and their emulation share.
//
// A block reads the section, copies its share of the sampled elements there, measures if there is a
// section, and adds the value that it read to a sum. The last block writes the results if all
// blocks read the same value and the step is still open, and moves the slot on.
#pragma once

#include <cstdint>

#include "kernels/core/graph_block.h"
#include "kernels/core/graph_slot.h"
#include "kernels/sample/batch.h"

namespace plumbline {

// Maximum number of blocks that copy. A row may be long, and the bus needs many bytes in flight,
// but each copying block must first read across the bus.
inline constexpr uint32_t kReplayCopiers = 16;

// Shared memory of a block.
struct ReplayPlace {
  uint64_t reported;
  ReplayEnd end;
  uint64_t results_at;  // 0: they are not delivered
  GraphWork work;
  GatherItem items[kGraphGathers];
};

PLUMB_HD inline uint32_t CopiersOf(uint32_t blocks) {
  return blocks < kReplayCopiers ? blocks : kReplayCopiers;
}

// Limits the count, because a section that was given up during the replay may contain any bytes.
PLUMB_HD inline uint32_t GathersOf(const GraphWork& work) {
  return work.gathers <= kGraphGathers ? work.gathers : 0;
}

// Does one thread's part, of `threads` threads, for a section that may be written.
PLUMB_HD inline void GatherElements(const ReplayPlace& place, uint64_t section, int64_t thread,
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

// Begins block `number` of `blocks`: returns the section for which it measures, or 0. Elements are
// copied at once, because they belong to the trainer.
template <typename Block>
PLUMB_DEVICE uint64_t BeginBlock(const Block& block, const GraphCall& call, int threads,
                                 uint32_t number, uint32_t blocks, ReplayPlace* place) {
  block.Each([&](int thread) {
    if (thread == 0) place->reported = QuerySection(call, number, number < CopiersOf(blocks));
  });
  block.Sync();
  const uint64_t reported = place->reported;
  const uint32_t copiers = CopiersOf(blocks);
  if (reported != 0 && number < copiers) {
    TakeDown(block, threads, WorkOf(reported), sizeof(GraphWork), &place->work);
    TakeDown(block, threads, PlaceIn(reported, place->work.gather_at),
             GathersOf(place->work) * sizeof(GatherItem), place->items);
    const int64_t all = int64_t{copiers} * threads;
    block.Each([&](int thread) {
      const int64_t of_all = int64_t{number} * threads + thread;
      GatherElements(*place, reported, of_all, all);
      CopyRows(place->work, reported, of_all, all);
    });
  }
  block.Sync();  // the place may be reused
  return reported;
}

// Ends the block, after it has added its measurements to the results, `words` of four bytes that
// are zero between replays.
template <typename Block>
PLUMB_DEVICE void EndBlock(const Block& block, const GraphCall& call, int threads, uint32_t number,
                           uint32_t blocks, uint64_t reported, uint32_t* results, uint64_t words,
                           ReplayPlace* place) {
  block.Sync();
  block.Each([&](int thread) {
    if (thread != 0) return;
    place->end = ReportSection(call, reported, number, blocks);
    const bool leave = place->end.last && place->end.agreed && SectionNow(call) == reported;
    place->results_at = leave && reported != 0 ? WorkOf(reported)->results_at : 0;
  });
  block.Sync();
  if (!place->end.last) return;
  block.Each([&](int thread) {
    const auto of_results = static_cast<uint64_t>(thread);
    const auto all = static_cast<uint64_t>(threads);
    if (place->results_at != 0)
      PutResults(reported, place->results_at, results, words, of_results, all);
    if (place->end.measured) ClearResults(results, words, of_results, all);
  });
  block.Sync();
  block.Each([&](int thread) {
    if (thread == 0) EndReported(call, reported, place->end.agreed, CopiersOf(blocks));
  });
}

}  // namespace plumbline
