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
// A call's first launch, of one thread, takes the section down into a word of the call's own; all
// others go by that word, so that a slot which changes under them cannot divide them. They return
// where it is 0, or measure into device memory of the call's own; the last one writes results and
// sampled elements into the section, and the last of its blocks moves the slot to the next one. So
// a step may replay a graph any number of times, also not at all, and a replay outside of a due
// step costs empty launches. Begin and end are counted in the section: where a replay spans the
// step's begin or end, or overlaps another of the same call, the two do not both come to one.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/core/copy_element.h"

namespace plumbline {

inline constexpr uint32_t kGraphCopies = 10;
inline constexpr uint32_t kGraphGathers = 6;

// A strided tensor of rank 1 or 2, or one row, to be copied densely.
struct GraphCopy {
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;  // in elements
  int64_t column_stride;
  uint64_t to;    // bytes from the section's begin
  uint32_t size;  // bytes of an element
  uint32_t padding;
};

// The begin of a section. Places are bytes from it.
struct GraphWork {
  uint32_t begun = 0;  // both counted by the device
  uint32_t done = 0;
  uint32_t copies = 0;
  uint32_t gathers = 0;
  int64_t samples = 0;       // of all gathers
  uint64_t results_at = 0;   // of the figures
  uint64_t gather_at = 0;    // GatherItems, then indices
  uint64_t gathered_at = 0;  // the gathers' results
  uint64_t plan_at = 0;      // ProductPlan; 0: none
  uint64_t plan_to = 0;
  GraphCopy copy[kGraphCopies];  // set up to `copies`: a step has many sections
};

// Counts every replay since the slot was opened. In pinned memory.
struct GraphCounts {
  uint64_t replays = 0;
};

struct GraphSlot {
  uint64_t section = 0;  // device address; 0: nothing is measured
  uint64_t tally = 0;    // GraphCounts's; 0: the step is not due
  uint32_t left = 0;     // sections from this one on
  uint32_t padding = 0;
  uint64_t stride = 0;        // bytes to the next section
  uint64_t later_stride = 0;  // and from there on
};

// What a captured call's launches are given. Device memory.
struct GraphCall {
  GraphSlot* slot = nullptr;
  uint64_t* section = nullptr;  // of the replay that is under way
  uint32_t* arrived = nullptr;  // blocks of its last launch that are done; 0 between replays
};

PLUMB_HD inline GraphWork* WorkOf(uint64_t section) {
  return reinterpret_cast<GraphWork*>(section);
}
PLUMB_HD inline unsigned char* PlaceIn(uint64_t section, uint64_t at) {
  return reinterpret_cast<unsigned char*>(section) + at;
}

namespace internal {

// Replays that are beside their step may count at the same time.
PLUMB_HD inline void CountOne(uint32_t* count) {
#if defined(__CUDA_ARCH__)
  atomicAdd(count, 1u);
#else
  ++*count;
#endif
}

// Of `blocks` blocks, each once it has read and written all that it does: is it the last?
PLUMB_HD inline bool ArriveLast(uint32_t* arrived, uint32_t blocks) {
#if defined(__CUDA_ARCH__)
  __threadfence();
  // Back to 0 in the same step: of replays that overlap no block is forgotten.
  const bool last = atomicInc(arrived, blocks - 1) == blocks - 1;
  __threadfence();
  return last;
#else
  if (++*arrived < blocks) return false;
  *arrived = 0;
  return true;
#endif
}

}  // namespace internal

// The first word of a replay: one thread's.
PLUMB_HD inline void BeginReplay(const GraphCall& call) {
  const uint64_t section = call.slot->section;
  *call.section = section;
  if (section != 0) internal::CountOne(&WorkOf(section)->begun);
}

// May the replay still write to its section? If not, the step was closed under it.
PLUMB_HD inline bool MayWrite(const GraphCall& call) {
  return *call.section != 0 && call.slot->section == *call.section;
}

// The last word of a replay: one thread's, when all others have read the slot for the last time.
PLUMB_HD inline void EndReplay(const GraphCall& call) {
  GraphSlot* slot = call.slot;
  if (slot->tally == 0) return;
  const uint64_t section = *call.section;
  if (slot->section != section) {  // the step was opened, or another replay ended, in the meantime
    if (slot->section != 0) internal::CountOne(&WorkOf(slot->section)->done);
    return;
  }
  ++reinterpret_cast<GraphCounts*>(slot->tally)->replays;
  if (section == 0) return;  // more replays than sections: counted
  internal::CountOne(&WorkOf(section)->done);
  slot->section = --slot->left == 0 ? 0 : section + slot->stride;
  slot->stride = slot->later_stride;
}

// One of `threads` threads' part in each of what follows, of a section that may be written.

// `work` is the section's, taken down: it lies across the bus.
PLUMB_HD inline void CopyRows(const GraphWork& work, uint64_t section, int64_t thread,
                              int64_t threads) {
  if (work.copies > kGraphCopies) return;  // given up under the replay, it may hold anything
  for (uint32_t c = 0; c < work.copies; ++c) {
    const GraphCopy& copy = work.copy[c];
    const int64_t count = copy.rows * copy.columns;
    if (thread >= count) continue;
    internal::MatrixWalk walk(copy.columns, thread, threads);
    for (int64_t i = thread; i < count; i += threads, walk.Next()) {
      internal::CopyElement(copy.data, walk.At(copy.row_stride, copy.column_stride), copy.size,
                            PlaceIn(section, copy.to), i);
    }
  }
}

PLUMB_HD inline void PutResults(const GraphWork& work, uint64_t section, const uint32_t* results,
                                uint64_t words, uint64_t thread, uint64_t threads) {
  auto* to = reinterpret_cast<uint32_t*>(PlaceIn(section, work.results_at));
  for (uint64_t i = thread; i < words; i += threads) to[i] = results[i];
}

// The device keeps zeros for the next replay, whatever became of this one.
PLUMB_HD inline void ClearResults(uint32_t* results, uint64_t words, uint64_t thread,
                                  uint64_t threads) {
  for (uint64_t i = thread; i < words; i += threads) results[i] = 0;
}

}  // namespace plumbline
