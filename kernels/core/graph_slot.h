// Probes in a CUDA graph: the data that a captured call finds in device memory at each replay, and
// their use. Plain data and arithmetic that kernels and their emulation share.
//
// A graph's launches are fixed when it is captured; they read the data that change from step to
// step. Each captured call has a slot on the device. At the begin of a due step the host copies all
// slots to the device, in the order of the stream on which graphs are replayed. At its end it sets
// them to zero:
//
//   slot (device)       section -> the next replay's place in a record of pinned memory, or 0
//   section (pinned)    GraphWork, written by the host: the layout; then the record's own data
//
// Most calls are one launch (sample/replay.h). Each of its blocks reads the section. If there is
// none, the block returns; otherwise it measures into device memory of the call. At its end each
// block adds the value that it read to a common sum. If all blocks read the same value, the last
// one writes the results and moves the slot to the next section. A router's call has several
// launches: the first, of one thread, copies the section into a word of the call, and all others
// use that word, so that all launches see the same section even if the slot changes. Therefore a
// step may replay a graph any number of times (also zero), and a replay outside of a due step costs
// an empty launch. Begin and end are counted in the section, once for each block that may write
// there. If a replay spans the step's begin or end, or overlaps another replay of the same call,
// the two counts differ.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/core/copy_element.h"

namespace plumbline {

inline constexpr uint32_t kGraphCopies = 11;
inline constexpr uint32_t kGraphGathers = 6;

// A strided tensor of rank 1 or 2, or one row, that is copied densely.
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

// The head of a section. Places are bytes from its begin.
struct GraphWork {
  uint32_t begun = 0;  // the device counts both
  uint32_t done = 0;
  uint32_t copies = 0;
  uint32_t gathers = 0;
  int64_t samples = 0;       // of all gathers
  uint64_t results_at = 0;   // of the figures
  uint64_t gather_at = 0;    // GatherItems, then indices
  uint64_t gathered_at = 0;  // the gathers' results
  uint64_t plan_at = 0;      // ProductPlan; 0: none
  uint64_t plan_to = 0;
  uint64_t began_ns = 0;  // by the device's clock: begin and end of the replay
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
  uint32_t left = 0;     // number of remaining sections, including this one
  uint32_t padding = 0;
  uint64_t stride = 0;        // bytes to the next section
  uint64_t later_stride = 0;  // and from there on
};

// The arguments of a captured call's launches. Device memory.
struct GraphCall {
  GraphSlot* slot = nullptr;
  uint64_t* section = nullptr;   // of the replay in progress: only for routers
  uint32_t* arrived = nullptr;   // blocks that are done; 0 between replays
  uint64_t* reported = nullptr;  // sum of the values that the blocks read; 0 between replays
};

PLUMB_HD inline GraphWork* WorkOf(uint64_t section) {
  return reinterpret_cast<GraphWork*>(section);
}
PLUMB_HD inline unsigned char* PlaceIn(uint64_t section, uint64_t at) {
  return reinterpret_cast<unsigned char*>(section) + at;
}

namespace internal {

// Adds atomically: replays outside of their step may count at the same time.
PLUMB_HD inline void Count(uint32_t* count, uint32_t n) {
#if defined(__CUDA_ARCH__)
  atomicAdd(count, n);
#else
  *count += n;
#endif
}

// Returns nanoseconds of a clock that is common to a device; without such a clock, of one that
// advances at each call.
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

// Adds to a word of the call, or reads it.
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

// Returns true for the last of `blocks` blocks to arrive. Each block calls it once, after all of
// its reads and writes.
PLUMB_HD inline bool ArriveLast(uint32_t* arrived, uint32_t blocks) {
#if defined(__CUDA_ARCH__)
  __threadfence();
  // Resets to 0 in the same operation, so that blocks of overlapping replays are counted.
  const bool last = atomicInc(arrived, blocks - 1) == blocks - 1;
  __threadfence();
  return last;
#else
  if (++*arrived < blocks) return false;
  *arrived = 0;
  return true;
#endif
}

// Ends a replay that was measured for `section`, to which `writers` blocks wrote; 0: there were
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

// Begins a replay; called by one thread.
PLUMB_HD inline void BeginReplay(const GraphCall& call) {
  const uint64_t section = call.slot->section;
  *call.section = section;
  if (section == 0) return;
  WorkOf(section)->began_ns = internal::DeviceNs();
  internal::Count(&WorkOf(section)->begun, 1);
}

// Returns true if the replay may still write to its section; false if the step was closed
// meanwhile.
PLUMB_HD inline bool MayWrite(const GraphCall& call) {
  return *call.section != 0 && call.slot->section == *call.section;
}

// Ends a replay; called by one thread, after all others have read the slot for the last time.
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

// Reads the section; the step may be opened or closed while blocks work.
PLUMB_HD inline uint64_t SectionNow(const GraphCall& call) {
  return *static_cast<const volatile uint64_t*>(&call.slot->section);
}

// Begins block `number`; called by one thread. `writes`: the block writes to the section before the
// launch's end, as the first block does.
PLUMB_HD inline uint64_t QuerySection(const GraphCall& call, uint32_t number, bool writes) {
  const uint64_t section = SectionNow(call);
  if (section != 0 && number == 0) WorkOf(section)->began_ns = internal::DeviceNs();
  if (section != 0 && writes) internal::Count(&WorkOf(section)->begun, 1);
  return section;
}

struct ReplayEnd {
  bool last;      // the other members are set only for the last block
  bool agreed;    // every block read the same value, and each is counted once
  bool measured;  // a block read a section
};

// Ends the block, after all reads and writes of its threads.
PLUMB_HD inline ReplayEnd ReportSection(const GraphCall& call, uint64_t reported, uint32_t number,
                                        uint32_t blocks) {
  // Includes the block's number: the sum differs if two replays overlap.
  internal::AddToWord(call.reported, reported + number);
  if (!internal::ArriveLast(call.arrived, blocks)) return {false, false, false};
  const uint64_t sum = internal::TakeWord(call.reported);
  const uint64_t numbers = uint64_t{blocks} * (blocks - 1) / 2;
  return {true, sum == blocks * reported + numbers, sum != numbers};
}

// Ends the last block; called by one thread. `writers`: blocks that asked in order to write.
PLUMB_HD inline void EndReported(const GraphCall& call, uint64_t reported, bool agreed,
                                 uint32_t writers) {
  GraphSlot* slot = call.slot;
  if (slot->tally == 0) return;
  if (agreed && slot->section == reported) {
    internal::MoveOn(slot, reported, writers);
  } else if (slot->section != 0) {
    internal::Count(&WorkOf(slot->section)->done, writers);
  }
}

// The following functions do one thread's part, of `threads` threads, for a section that may be
// written.

// `work` is a local copy of the section's head, because the section is across the bus.
PLUMB_HD inline void CopyRows(const GraphWork& work, uint64_t section, int64_t thread,
                              int64_t threads) {
  if (work.copies > kGraphCopies)
    return;  // if the section was given up during the replay, it may
             // contain anything
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

// Resets the device's results to zero for the next replay, for any outcome of this replay.
PLUMB_HD inline void ClearResults(uint32_t* results, uint64_t words, uint64_t thread,
                                  uint64_t threads) {
  for (uint64_t i = thread; i < words; i += threads) results[i] = 0;
}

}  // namespace plumbline
