// What the last launch of a captured call (graph_slot.h) does in its section: results and sampled
// elements leave the device. Arithmetic that kernels and their emulation share.
#pragma once

#include <cstdint>

#include "kernels/core/graph_slot.h"
#include "kernels/product/gather.h"
#include "kernels/sample/batch.h"

namespace plumbline {

// One of `threads` threads' part in each of what follows, of a section that may be written.

PLUMB_HD inline void CopyRows(uint64_t section, int64_t thread, int64_t threads) {
  const GraphWork& work = *WorkOf(section);
  for (uint32_t c = 0; c < work.copies; ++c) {
    const GraphCopy& copy = work.copy[c];
    for (int64_t i = thread; i < copy.rows * copy.columns; i += threads) {
      const int64_t from =
          i / copy.columns * copy.row_stride + i % copy.columns * copy.column_stride;
      internal::CopyElement(copy.data, from, copy.size, PlaceIn(section, copy.to), i);
    }
  }
}

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

PLUMB_HD inline void PutResults(uint64_t section, const uint32_t* results, uint64_t words,
                                uint64_t thread, uint64_t threads) {
  auto* to = reinterpret_cast<uint32_t*>(PlaceIn(section, WorkOf(section)->results_at));
  for (uint64_t i = thread; i < words; i += threads) to[i] = results[i];
}

// The device keeps zeros for the next replay, whatever became of this one.
PLUMB_HD inline void ClearResults(uint32_t* results, uint64_t words, uint64_t thread,
                                  uint64_t threads) {
  for (uint64_t i = thread; i < words; i += threads) results[i] = 0;
}

}  // namespace plumbline
