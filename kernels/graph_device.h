// The launches of captured calls (graph_slot.h): each enqueues, on a stream that is being captured,
// what a graph is to hold of one call. Nothing is allocated, nothing waits.
//
// A call's slot and section lie in device memory, zero until a step opens the slot. They, the
// workspace and the tensors must live as long as the graph. Calls that share a workspace must be on
// one stream of one capture. All return 0 or a cudaError_t. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/batch_shape.h"
#include "kernels/graph_slot.h"
#include "kernels/routing_plan.h"

namespace plumbline {

// Loads what only graphs use into the current context.
int LoadGraphKernels();

// `workspace`: a batch's items, put there before, and its results, zero; of this call alone.
int CaptureTensorStats(const BatchShape& batch, int processors, void* workspace,
                       const GraphCall& call, void* stream);
int CaptureUpdateChecks(const BatchShape& batch, int processors, void* workspace,
                        const GraphCall& call, void* stream);
// `workspace`: as LaunchRouting's.
int CaptureRouting(const RoutingPlan& plan, int processors, void* workspace, const GraphCall& call,
                   void* stream);
// The plan stands in the section; `threads`: ProductThreads of the largest.
int CaptureProduct(int64_t threads, const GraphCall& call, void* stream);

// What the captures above but the router's begin and end with: the section is taken down; results
// (`bytes`, a multiple of 4, may be 0) and elements leave the device, the slot moves on.
int CaptureBegin(const GraphCall& call, void* stream);
int CaptureDeliver(void* results, uint64_t bytes, const GraphCall& call, void* stream);

}  // namespace plumbline
