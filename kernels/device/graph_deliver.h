// The sampled elements of a captured call (core/graph_slot.h) leave the device in its last launch.
// Arithmetic that kernels and their emulation share.
#pragma once

#include <cstdint>

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

}  // namespace plumbline
