// The launches with which every captured call (graph_slot.h) begins and ends, for those that stand
// in between. Defined beside the graphs themselves (graph.cu).
#pragma once

#include <cstdint>

#include "kernels/core/graph_slot.h"

namespace plumbline {

// The section is taken down; results (`bytes`, a multiple of 4, may be 0) and elements leave the
// device, the slot moves on. 0, or a cudaError_t. Thread-safe.
int CaptureBegin(const GraphCall& call, void* stream);
int CaptureDeliver(void* results, uint64_t bytes, const GraphCall& call, void* stream);

}  // namespace plumbline
