// Computes tensor statistics on a device, many in one launch. BatchShape (batch_shape.h) describes
// staging memory and workspace.
#pragma once

#include "kernels/core/batch_shape.h"
#include "kernels/core/graph_slot.h"
#include "kernels/sample/eager.h"

namespace plumbline {

// Loads the kernel into the current context: a kernel that is first loaded by its launch may make
// that launch wait for the device. Returns 0 or a cudaError_t.
int LoadTensorStatsKernel();

// Launches once and also copies `sampled`; more items than the arguments hold (15) need several
// launches.
int LaunchTensorStats(const BatchShape& batch, int processors, const BatchMemory& memory,
                      const SampledPart& sampled, void* stream);

// Enqueues one batch's part of a graph (graph_slot.h) on a stream that is being captured; allocates
// nothing and waits for nothing. `workspace`: the batch's items, written before, and its zeroed
// results; used by this call only. Call, workspace and tensors must exist as long as the graph.
// Returns 0 or a cudaError_t. Thread-safe.
int CaptureTensorStats(const BatchShape& batch, int processors, void* workspace,
                       const GraphCall& call, void* stream);

}  // namespace plumbline
