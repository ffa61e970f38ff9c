// The sampled elements of a captured call (core/graph_slot.h) leave the device in its last launch.
// Arithmetic that kernels and their emulation share.
#pragma once

#include <cstdint>

#include "kernels/core/graph_block.h"
#include "kernels/core/graph_slot.h"
#include "kernels/sample/batch.h"

namespace plumbline {

// One of `threads` threads' part, of a section that may be written.
PLUMB_HD inline void GatherElements(uint64_t section, int64_t thread, int64_t threads) {
  const GraphWork& work = *WorkOf(section);
  if (work.gathers == 0) return;
  const auto count = static_cast<int>(work.gathers);
  const auto* items = reinterpret_cast<const GatherItem*>(PlaceIn(section, work.gather_at));
  const auto* indices = reinterpret_cast<const uint64_t*>(items + count);
  for (int64_t i = thread; i < work.samples; i += threads) {
    const GatherItem& item = items[ItemOfSpan(items, count, i)];
    GatherOne(item, i - item.first_span, indices[i], PlaceIn(section, work.gathered_at));
  }
}

// The last launch of a captured call, of one block: results (`words` of four bytes) and elements
// leave the device, the slot moves on. `decided`: the block's common memory.
template <typename Block>
PLUMB_DEVICE void DeliverReplay(const Block& block, const GraphCall& call, int threads,
                                uint32_t* results, uint64_t words, uint64_t* decided) {
  const uint64_t open = DecideSection(block, call, decided);
  block.Each([&](int thread) {
    const auto of_results = static_cast<uint64_t>(thread);
    if (open != 0) {
      PutResults(open, results, words, of_results, static_cast<uint64_t>(threads));
      GatherElements(open, thread, threads);
      CopyRows(open, thread, threads);
    }
    if (*call.section != 0)
      ClearResults(results, words, of_results, static_cast<uint64_t>(threads));
  });
  block.Sync();
  block.Each([&](int thread) {
    if (thread == 0) EndReplay(call);
  });
}

}  // namespace plumbline
