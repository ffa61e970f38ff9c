// Functions for graphs only: the sampled parts of a product whose plan changes from step to step.
#pragma once

#include <cstdint>

#include "kernels/core/graph_slot.h"

namespace plumbline {

// Loads the kernels for graphs into the current context. Returns 0 or a cudaError_t.
int LoadGraphKernels();

// Enqueues one call's part of a graph on a stream that is being captured. The plan is in the
// section; `threads`: ProductThreads of the largest plan. Returns 0 or a cudaError_t. Thread-safe.
int CaptureProduct(int64_t threads, const GraphCall& call, void* stream);

}  // namespace plumbline
