// Tensor statistics on a device, many in one launch: what BatchShape says (batch_shape.h) of
// staging memory and workspace holds.
#pragma once

#include "kernels/core/batch_shape.h"
#include "kernels/core/graph_slot.h"
#include "kernels/sample/eager.h"

namespace plumbline {

// Loads the kernel into the current context: one that is first loaded by its launch may make that
// launch wait for the device. 0, or a cudaError_t.
int LoadTensorStatsKernel();

// One launch, which copies `sampled` besides; of more items than its arguments have room for (15):
// several.
int LaunchTensorStats(const BatchShape& batch, int processors, const BatchMemory& memory,
                      const SampledPart& sampled, void* stream);

// What a graph is to hold of one batch (graph_slot.h): enqueued on a stream that is being captured;
// nothing is allocated, nothing waits. `workspace`: the batch's items, put there before, and its
// results, zero; of this call alone. Call, workspace and tensors must live as long as the graph. 0,
// or a cudaError_t. Thread-safe.
int CaptureTensorStats(const BatchShape& batch, int processors, void* workspace,
                       const GraphCall& call, void* stream);

}  // namespace plumbline
