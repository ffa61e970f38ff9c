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
// Most calls are one launch (sample/replay.h). Its blocks each ask for the section, return where
// there is none, or measure into device memory of the call's own, and tell what they were told; the
// last one writes the results, and moves the slot to the next section, if all were told the same.
// A router's call has several launches: the first, of one thread, takes the section down into a
// word of the call's own, and all others go by that word, so that a slot which changes under them
// cannot divide them. So a step may replay a graph any number of times, also not at all, and a
// replay outside of a due step costs an empty launch. Begin and end are counted in the section,
// once for each block that may write there: where a replay spans the step's begin or end, or
// overlaps another of the same call, the two are not the same.
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
  uint64_t began_ns = 0;  // by the device's clock: how long the replay took
  uint64_t ended_ns = 0;
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
  uint64_t* section = nullptr;  // of the replay that is under way: a router's
  uint32_t* arrived = nullptr;  // blocks that are done; 0 between replays
  uint64_t* told = nullptr;     // the sum of what they were told; 0 between replays
};

PLUMB_HD inline GraphWork* WorkOf(uint64_t section) {
  return reinterpret_cast<GraphWork*>(section);
}
PLUMB_HD inline unsigned char* PlaceIn(uint64_t section, uint64_t at) {
  return reinterpret_cast<unsigned char*>(section) + at;
}

namespace internal {

// Replays that are beside their step may count at the same time.
PLUMB_HD inline void Count(uint32_t* count, uint32_t n) {
#if defined(__CUDA_ARCH__)
  atomicAdd(count, n);
#else
  *count += n;
#endif
}

// Nanoseconds of a clock that all of a device has in common; where there is none, of one that goes
// on when it is looked at.
PLUMB_HD inline uint64_t DeviceNs() {
#if defined(__CUDA_ARCH__)
  uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
#else
  static uint64_t looks = 0;
  return looks += 500;
#endif
}

// To or from a word of a call's own.
PLUMB_HD inline void AddToWord(uint64_t* word, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
  *word += value;
#endif
}
PLUMB_HD inline uint64_t TakeWord(uint64_t* word) {
#if defined(__CUDA_ARCH__)
  return atomicExch(reinterpret_cast<unsigned long long*>(word), 0ull);
#else
  const uint64_t value = *word;
  *word = 0;
  return value;
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

// A replay is over that was measured for `section`, to which `writers` blocks wrote; 0: there were
// more replays than sections.
PLUMB_HD inline void MoveOn(GraphSlot* slot, uint64_t section, uint32_t writers) {
  ++reinterpret_cast<GraphCounts*>(slot->tally)->replays;
  if (section == 0) return;
  WorkOf(section)->ended_ns = DeviceNs();
  Count(&WorkOf(section)->done, writers);
  slot->section = --slot->left == 0 ? 0 : section + slot->stride;
  slot->stride = slot->later_stride;
}

}  // namespace internal

// The first word of a replay: one thread's.
PLUMB_HD inline void BeginReplay(const GraphCall& call) {
  const uint64_t section = call.slot->section;
  *call.section = section;
  if (section == 0) return;
  WorkOf(section)->began_ns = internal::DeviceNs();
  internal::Count(&WorkOf(section)->begun, 1);
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
    if (slot->section != 0) internal::Count(&WorkOf(slot->section)->done, 1);
    return;
  }
  internal::MoveOn(slot, section, 1);
}

// ---- a replay of one launch ----

// The step may be opened or closed while blocks are at work.
PLUMB_HD inline uint64_t SectionNow(const GraphCall& call) {
  return *static_cast<const volatile uint64_t*>(&call.slot->section);
}

// The first word of block `number`: one thread's. `writes`: it writes to the section before the
// launch's end, as the first block does.
PLUMB_HD inline uint64_t AskSection(const GraphCall& call, uint32_t number, bool writes) {
  const uint64_t section = SectionNow(call);
  if (section != 0 && number == 0) WorkOf(section)->began_ns = internal::DeviceNs();
  if (section != 0 && writes) internal::Count(&WorkOf(section)->begun, 1);
  return section;
}

struct ReplayEnd {
  bool last;      // the others are set for it alone
  bool agreed;    // every block was told the same, and each is there once
  bool measured;  // a block was told of a section
};

// Its last word, once all its threads have read and written all that they do.
PLUMB_HD inline ReplayEnd TellSection(const GraphCall& call, uint64_t told, uint32_t number,
                                      uint32_t blocks) {
  // With the block's number: of two replays that overlap the sum is another.
  internal::AddToWord(call.told, told + number);
  if (!internal::ArriveLast(call.arrived, blocks)) return {false, false, false};
  const uint64_t sum = internal::TakeWord(call.told);
  const uint64_t numbers = uint64_t{blocks} * (blocks - 1) / 2;
  return {true, sum == blocks * told + numbers, sum != numbers};
}

// The last word of the last block: one thread's. `writers`: blocks that asked in order to write.
PLUMB_HD inline void EndTold(const GraphCall& call, uint64_t told, bool agreed, uint32_t writers) {
  GraphSlot* slot = call.slot;
  if (slot->tally == 0) return;
  if (agreed && slot->section == told) {
    internal::MoveOn(slot, told, writers);
  } else if (slot->section != 0) {
    internal::Count(&WorkOf(slot->section)->done, writers);
  }
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

PLUMB_HD inline void PutResults(uint64_t section, uint64_t results_at, const uint32_t* results,
                                uint64_t words, uint64_t thread, uint64_t threads) {
  auto* to = reinterpret_cast<uint32_t*>(PlaceIn(section, results_at));
  for (uint64_t i = thread; i < words; i += threads) to[i] = results[i];
}

// The device keeps zeros for the next replay, whatever became of this one.
PLUMB_HD inline void ClearResults(uint32_t* results, uint64_t words, uint64_t thread,
                                  uint64_t threads) {
  for (uint64_t i = thread; i < words; i += threads) results[i] = 0;
}

}  // namespace plumbline
