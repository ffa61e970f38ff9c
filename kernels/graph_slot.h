// Probes in a CUDA graph: what a captured call finds in device memory at each replay, and what it
// makes of it. Plain data and the arithmetic that kernels and their emulation share.
//
// A graph's launches are fixed when it is captured; what changes from step to step is read by them.
// Each captured call has a slot on the device. At the begin of a due step the host copies all
// slots, in the order of the stream on which graphs are replayed, and at its end sets them to zero:
//
//   slot (device)       section -> the next replay's place in a record of pinned memory, or 0
//   section (pinned)    GraphWork, written by the host: what goes where; then the record's own data
//
// A call's first launch finds the slot closed and returns, or measures into device memory of the
// call's own; its last one (Deliver, or the router's Finish) writes results and sampled elements
// into the section and advances the slot to the next one. So a step may replay a graph any number
// of times, also not at all, and a replay outside of a due step costs empty launches.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/batch_shape.h"
#include "kernels/gather_batch.h"
#include "kernels/product_gather.h"

namespace plumbline {

inline constexpr uint32_t kGraphCopies = 10;

// A strided tensor of rank 1 or 2, or one row, to be copied densely.
struct GraphCopy {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // in elements
  int64_t column_stride = 0;
  uint64_t to = 0;    // bytes from the section's begin
  uint32_t size = 0;  // bytes of an element
  uint32_t padding = 0;
};

// The begin of a section. Places are bytes from it.
struct GraphWork {
  uint32_t begun = 0;  // both set by the device, so that the host sees a replay that was not
  uint32_t done = 0;   // ordered with its step
  uint32_t copies = 0;
  uint32_t gathers = 0;
  int64_t samples = 0;       // of all gathers
  uint64_t results_at = 0;   // of the figures
  uint64_t gather_at = 0;    // GatherItems, then indices
  uint64_t gathered_at = 0;  // the gathers' results
  uint64_t plan_at = 0;      // ProductPlan; 0: none
  uint64_t plan_to = 0;
  GraphCopy copy[kGraphCopies];
};

// Counts every replay since the slot was opened. In pinned memory.
struct GraphTally {
  uint64_t replays = 0;
};

struct GraphSlot {
  uint64_t section = 0;  // device address; 0: nothing is measured
  uint64_t tally = 0;    // GraphTally's; 0: the step is not due
  uint32_t left = 0;     // sections from this one on
  uint32_t padding = 0;
  uint64_t stride = 0;        // bytes to the next section
  uint64_t later_stride = 0;  // and from there on
};

PLUMB_HD inline GraphWork* WorkOf(const GraphSlot& slot) {
  return reinterpret_cast<GraphWork*>(slot.section);
}
PLUMB_HD inline unsigned char* SectionOf(const GraphSlot& slot) {
  return reinterpret_cast<unsigned char*>(slot.section);
}

// One of `threads` threads' part in each of what follows. The slot is open.

PLUMB_HD inline void CopyRows(const GraphSlot& slot, int64_t thread, int64_t threads) {
  const GraphWork& work = *WorkOf(slot);
  for (uint32_t c = 0; c < work.copies; ++c) {
    const GraphCopy& copy = work.copy[c];
    for (int64_t i = thread; i < copy.rows * copy.columns; i += threads) {
      const int64_t from =
          i / copy.columns * copy.row_stride + i % copy.columns * copy.column_stride;
      internal::CopyElement(copy.data, from, copy.size, SectionOf(slot) + copy.to, i);
    }
  }
}

PLUMB_HD inline void GatherElements(const GraphSlot& slot, int64_t thread, int64_t threads) {
  const GraphWork& work = *WorkOf(slot);
  if (work.gathers == 0) return;
  const auto count = static_cast<int>(work.gathers);
  const auto* items = reinterpret_cast<const GatherItem*>(SectionOf(slot) + work.gather_at);
  const auto* indices = reinterpret_cast<const uint64_t*>(items + count);
  for (int64_t i = thread; i < work.samples; i += threads) {
    const GatherItem& item = items[ItemOfSpan(items, count, i)];
    GatherOne(item, i - item.first_span, indices[i], SectionOf(slot) + work.gathered_at);
  }
}

// Results of `words` words of 32 bits leave the device, which keeps zeros for the next replay.
PLUMB_HD inline void TakeResults(const GraphSlot& slot, uint32_t* results, uint64_t words,
                                 uint64_t thread, uint64_t threads) {
  auto* to = reinterpret_cast<uint32_t*>(SectionOf(slot) + WorkOf(slot)->results_at);
  for (uint64_t i = thread; i < words; i += threads) {
    to[i] = results[i];
    results[i] = 0;
  }
}

// The last word of a replay: one thread's, when all others have read the slot for the last time.
PLUMB_HD inline void Advance(GraphSlot* slot) {
  if (slot->tally == 0) return;
  ++reinterpret_cast<GraphTally*>(slot->tally)->replays;
  if (slot->section == 0) return;  // more replays than sections: counted
  WorkOf(*slot)->done = 1;
  slot->section = --slot->left == 0 ? 0 : slot->section + slot->stride;
  slot->stride = slot->later_stride;
}

}  // namespace plumbline
