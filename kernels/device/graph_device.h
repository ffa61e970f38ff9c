// What only graphs hold: the sampled parts of a product whose plan changes from step to step.
#pragma once

#include <cstdint>

#include "kernels/core/graph_slot.h"

namespace plumbline {

// Loads what only graphs use into the current context. 0, or a cudaError_t.
int LoadGraphKernels();

// Enqueues, on a stream that is being captured, what a graph is to hold of one call. The plan
// stands in the section; `threads`: ProductThreads of the largest. 0, or a cudaError_t.
// Thread-safe.
int CaptureProduct(int64_t threads, const GraphCall& call, void* stream);

}  // namespace plumbline
