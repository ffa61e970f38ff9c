// Tensor statistics, update checks and sampled gathers of many device tensors, each kind in one
// launch.
//
// A batch is planned on the host (TensorBatch, UpdateBatch, GatherBatch) and launched with memory
// of the caller's:
//   staging    host memory, pinned (else the copies wait for the stream): the table goes up from
//   it,
//              results come back to it
//   workspace  device memory, 256-byte aligned
// both of MemoryOf(batch).bytes(). They, and the tensors, must live until the stream has passed the
// launch; a launch must not be enqueued with the staging memory of one that is under way. Nothing
// is allocated, nothing waits. `stream` is a cudaStream_t of the batch's device, which must be
// current.
//
// When the stream has passed, batch.Finish(ResultsOf(...)) gives what the host twins give, in every
// bit. Launches fail with InvalidArgument for a batch that is not on a device or for missing
// memory, and with Internal and CUDA's own text. Thread-safe.
#pragma once

#include <cstddef>

#include "kernels/gather_batch.h"
#include "kernels/tensor_batch.h"
#include "kernels/update_batch.h"

namespace plumbline {

struct BatchMemory {
  size_t item_bytes;
  size_t result_bytes;

  size_t results() const { return (item_bytes + 255) / 256 * 256; }
  size_t bytes() const { return results() + result_bytes; }
};

template <typename Batch>
BatchMemory MemoryOf(const Batch& batch) {
  return {batch.item_bytes(), batch.result_bytes()};
}

template <typename Batch>
const std::byte* ResultsOf(const Batch& batch, const void* staging) {
  return static_cast<const std::byte*>(staging) + MemoryOf(batch).results();
}

// Loads the kernels into the current context: one that is first loaded by its launch may make that
// launch wait for the device. 0, or a cudaError_t.
int LoadTensorStatsKernel();
int LoadUpdateCheckKernel();
int LoadGatherKernel();

int LaunchTensorStats(const TensorBatch& batch, int processors, void* staging, void* workspace,
                      void* stream);
int LaunchUpdateChecks(const UpdateBatch& batch, int processors, void* staging, void* workspace,
                       void* stream);
int LaunchGathers(const GatherBatch& batch, int processors, void* staging, void* workspace,
                  void* stream);

}  // namespace plumbline
