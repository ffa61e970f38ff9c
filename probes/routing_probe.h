// The routing probe: takes one router call off the trainer's thread and turns it into evidence.
//
// Host tensors are copied on the caller's thread, densely, into one slot of bytes, and nothing of
// the trainer's is referenced afterwards. On the drain thread the slot is read back, summarised by
// the CPU reference, and on sampled steps its rows become the sample. Copying costs the trainer a
// few per cent of what the summary does (bench/agent); a call too large for a slot is summarised
// where it is, on the caller's thread. Device tensors go through a DeviceProbe (device/probe.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/routing/plan.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/routing_call.h"

namespace plumbline::probes {

// Why a call cannot be measured at all, found from shapes and types alone: InvalidArgument names
// the tensor, what it is and what was expected. All tensors lie on the host or all on one device.
// Nothing is allocated when the call is fine.
absl::Status CheckRoutingCall(const RoutingCall& call);

// Upper estimate of a summary's bytes in evidence, from the shape alone.
uint64_t SummaryBytes(const RoutingCall& call);

// Fills `out`: configuration and summary, and the sample too when `sample` is set and its bytes do
// not exceed `sample_max_bytes` (otherwise no_sample_reason). Host tensors. A call whose values
// contradict each other (an index out of range) is InvalidArgument; NaN and infinity are data.
absl::Status MeasureRouting(const RoutingCall& call, bool sample, uint64_t sample_max_bytes,
                            v1::Routing* out);

// The same from what a device measured: `plan` as it was launched with, `raw` as it came back,
// `call` as its slot was loaded. Rows that were left out of the slot are the no_sample_reason.
absl::Status FinishRouting(const RoutingCall& call, const RoutingPlan& plan, const RoutingRaw& raw,
                           bool sample, uint64_t sample_max_bytes, v1::Routing* out);

}  // namespace plumbline::probes
