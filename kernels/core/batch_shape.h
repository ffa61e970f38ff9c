// A batch as plain data: the arguments of a launch, except its memory.
//
// A batch is planned on the host (TensorBatch, UpdateBatch, GatherBatch) and launched as its shape,
// with memory of the caller's:
//   items      host memory (batch.Put), item_bytes: they are copied into the launch's arguments,
//   and
//              are not needed after the call returns
//   staging    pinned host memory by its address on the device, 16-byte aligned, shape.bytes(): the
//              launch's last block writes the results there, at results_at(). Gathers read their
//              indices from it, in the place of the items
//   workspace  device memory, 256-byte aligned, BatchWorkspace(shape), zeroed: every launch leaves
//   it
//              zeroed. Gathers need none
// Staging, workspace and the tensors must exist until the stream has passed the launch. A launch
// must not be enqueued with the staging memory of one in progress, nor, on another stream, with
// its workspace. Nothing is allocated, and nothing waits. `stream` is a cudaStream_t of the
// batch's device, which must be current.
//
// When the stream has passed, batch.Finish(staging + shape.results_at()) gives the result of the
// CPU reference, in every bit. Launches return 0 or a cudaError_t; cudaErrorInvalidValue for a
// batch that is not on a device or for missing memory. Thread-safe.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace plumbline {

// Staging memory, and the workspace of a graph's call: the items, then, 256-byte aligned, the
// results.
struct BatchShape {
  int32_t device = -1;  // CUDA ordinal; < 0: on the host, which launches refuse
  int32_t items = 0;    // tensors, updates or gathers
  int64_t work = 0;     // spans of all of them; of gathers, samples
  uint64_t item_bytes = 0;
  uint64_t result_bytes = 0;

  constexpr uint64_t results_at() const { return (item_bytes + 255) / 256 * 256; }
  constexpr uint64_t bytes() const { return results_at() + result_bytes; }
};

struct BatchMemory {
  const void* items = nullptr;
  void* staging = nullptr;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
};

// Memory for the counters of a launch's blocks, before the results.
inline constexpr uint64_t kArrivedBytes = 256;
constexpr uint64_t BatchWorkspace(const BatchShape& shape) {
  return kArrivedBytes + shape.result_bytes;
}

// Returns the last item with spans whose first_span is not beyond `span`.
template <typename Item>
PLUMB_HD inline int ItemOfSpan(const Item* items, int count, int64_t span) {
  int low = 0;
  int high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (items[middle].first_span <= span) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace plumbline
