// The routing measurement on a device: a few small launches on the caller's stream and one over the
// scores, which are read once. Where the record says what was kept, the pools' ids are entered
// before it and the pools' cells folded after it; the sequences are looked at, and a witness looked
// up, only when something was refused. No synchronisation, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/routing_plan.h"

namespace plumbline {

// Device memory that one call of up to `tokens` rows and `experts` experts needs while it runs;
// 256-byte aligned. About 40 KiB, 18 KiB an expert and 24 bytes per 256 rows.
size_t RoutingWorkspaceBytes(int64_t tokens, int experts);

// Enqueues the measurement of `in`, whose tensors are on device `in.scores.device`, on `stream` (a
// cudaStream_t of that device, which must be current). When the stream gets there, *result is
// written whole: device memory, or host memory the device can write (pinned). Wait for the stream
// (or an event) before reading it, then call FinishRouting(plan, *result, &stats), which gives what
// SummariseRouting would: same integers, same bits of the means.
//
// `*plan` receives the checked description that FinishRouting wants. Workspace, result and the
// tensors must live until the stream has passed. Calls that share a workspace must be on one
// stream. InvalidArgument as SummariseRouting, for all but the values; Internal with CUDA's own
// text when a launch fails. Thread-safe. Safe under stream capture.
absl::Status LaunchRouting(const RoutingInput& in, void* workspace, size_t workspace_bytes,
                           RoutingRaw* result, void* stream, RoutingPlan* plan);

}  // namespace plumbline
