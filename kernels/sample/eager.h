// A call outside of graphs, in one launch: its items are arguments, the trainer's sampled elements
// are copied at its begin, and its last block writes the results to pinned memory and leaves zeros
// for the next launch. Arithmetic that kernels and their emulation share; see replay.h for graphs.
#pragma once

#include <cstdint>

#include "kernels/core/batch_launches.h"
#include "kernels/core/graph_block.h"
#include "kernels/core/graph_slot.h"
#include "kernels/sample/batch.h"
#include "kernels/sample/replay.h"

namespace plumbline {

// Data that a launch also copies to pinned memory: sampled elements, or one row. An argument of the
// launch; addresses are the device's.
struct SampledPart {
  uint32_t gathers = 0;
  uint32_t copies = 0;                // 1: the row
  int64_t samples = 0;                // of all gathers
  const uint64_t* indices = nullptr;  // [samples], across the bus: each is read once
  unsigned char* gathered = nullptr;
  GraphCopy row{};  // `to` is not used
  unsigned char* row_to = nullptr;
  GatherItem gather[kGraphGathers];  // the first `gathers` entries are set
};

// The place of a launch's results, `words` of four bytes, and their destination.
struct EagerCall {
  uint32_t* arrived = nullptr;  // blocks that are done; 0 between launches
  uint32_t* results = nullptr;  // zeros between launches
  uint32_t* to = nullptr;
  uint64_t words = 0;
};

// Returns the call of a launch whose results begin `result` bytes after the batch's first.
inline EagerCall EagerAt(const BatchShape& batch, const BatchMemory& memory, uint64_t result,
                         uint64_t result_bytes) {
  auto* on = static_cast<unsigned char*>(memory.workspace);
  auto* to = static_cast<unsigned char*>(memory.staging) + batch.results_at() + result;
  return {reinterpret_cast<uint32_t*>(on), reinterpret_cast<uint32_t*>(on + kArrivedBytes + result),
          reinterpret_cast<uint32_t*>(to), result_bytes / sizeof(uint32_t)};
}

// Begins block `number` of `blocks`.
template <typename Block>
PLUMB_DEVICE void BeginEager(const Block& block, const SampledPart& part, int threads,
                             uint32_t number, uint32_t blocks) {
  const uint32_t copiers = CopiersOf(blocks);
  if (number >= copiers) return;
  const int64_t all = int64_t{copiers} * threads;
  block.Each([&](int thread) {
    const int64_t of_all = int64_t{number} * threads + thread;
    for (int64_t i = of_all; i < part.samples; i += all) {
      const GatherItem& item =
          part.gather[ItemOfSpan(part.gather, static_cast<int>(part.gathers), i)];
      GatherOne(item, i - item.first_span, part.indices[i], part.gathered);
    }
    const GraphCopy& row = part.row;
    if (part.copies == 0 || of_all >= row.rows * row.columns) return;
    internal::MatrixWalk walk(row.columns, of_all, all);
    for (int64_t i = of_all; i < row.rows * row.columns; i += all, walk.Next()) {
      internal::CopyElement(row.data, walk.At(row.row_stride, row.column_stride), row.size,
                            part.row_to, i);
    }
  });
}

// Ends the block, after it has added its measurements to the results. `last`: shared memory of the
// block that is no longer in use.
template <typename Block>
PLUMB_DEVICE void EndEager(const Block& block, const EagerCall& call, int threads, uint32_t blocks,
                           uint32_t* last) {
  block.Sync();
  block.Each([&](int thread) {
    if (thread == 0) *last = internal::ArriveLast(call.arrived, blocks) ? 1 : 0;
  });
  block.Sync();
  if (*last == 0) return;
  block.Each([&](int thread) {
    const auto all = static_cast<uint64_t>(threads);
    for (auto i = static_cast<uint64_t>(thread); i < call.words; i += all) {
      call.to[i] = call.results[i];
      call.results[i] = 0;
    }
  });
}

}  // namespace plumbline
