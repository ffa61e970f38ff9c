// Runs the routing measurement on a device: a few small launches on the caller's stream and one
// over the scores, which are read once. If the kept choices are recorded, the pools' ids are
// entered before that launch, and the pools' cells are folded after it. Sequences and a witness are
// examined only if a choice was refused. No synchronisation, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/graph_slot.h"
#include "kernels/routing/plan.h"

namespace plumbline {

// Returns the device memory that one call of up to `tokens` rows and `experts` experts needs while
// it runs; 256-byte aligned. About 40 KiB, 18 KiB per expert and 24 bytes per 256 rows.
size_t RoutingWorkspaceBytes(int64_t tokens, int experts);

// Loads every kernel into the current context: a kernel that is first loaded by its launch may make
// that launch wait for the device. Returns 0 or a cudaError_t.
int LoadRoutingKernels();

// Enqueues the measurement of `plan` (PlanRouting's, of tensors on the current device) on `stream`
// (a cudaStream_t of that device). When the stream reaches it, *result is written completely:
// device memory, or host memory that the device can write (pinned). Wait for the stream (or an
// event) before reading it, then call FinishRouting(plan, *result, &stats), which gives the result
// of SummariseRouting: same integers, same bits of the means.
//
// `processors`: multiprocessors of the device. Workspace, result and the tensors must exist until
// the stream has passed. Calls that share a workspace must be on one stream, one after another.
// Returns 0 or the cudaError_t of a launch. Thread-safe.
int LaunchRouting(const RoutingPlan& plan, int processors, void* workspace, RoutingRaw* result,
                  void* stream);

// Enqueues one call's part of a graph (graph_slot.h) on a stream that is being captured.
// `workspace`: as LaunchRouting's; with call and tensors it must exist as long as the graph. Calls
// that share a workspace must be on one stream of one capture. Returns 0 or a cudaError_t.
// Thread-safe.
int CaptureRouting(const RoutingPlan& plan, int processors, void* workspace, const GraphCall& call,
                   void* stream);

}  // namespace plumbline
