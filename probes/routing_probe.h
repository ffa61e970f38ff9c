// The routing probe: takes one router call off the trainer's thread and turns it into evidence.
//
// Host tensors are copied on the caller's thread, densely, into one slot of bytes, and the
// trainer's memory is not referenced afterwards. On the drain thread the slot is read back and
// summarised by the CPU reference; on sampled steps its rows become the sample. Copying costs the
// trainer a few per cent of the summary (bench/agent). A call that is too large for a slot is
// summarised in place, on the caller's thread. Device tensors go through a DeviceProbe
// (device/probe.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/routing/plan.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/routing_call.h"

namespace plumbline::probes {

// Checks whether a call can be measured, from shapes and types alone: returns InvalidArgument with
// the tensor, its properties and what was expected. All tensors must be on the host or all on one
// device. Allocates nothing if the call is correct.
absl::Status CheckRoutingCall(const RoutingCall& call);

// Returns an upper estimate of a summary's bytes in evidence, from the shape alone.
uint64_t SummaryBytes(const RoutingCall& call);

// Fills `out`: configuration and summary, and also the sample if `sample` is set and its bytes do
// not exceed `sample_max_bytes` (otherwise no_sample_reason). Host tensors. Returns InvalidArgument
// for a call with contradictory values (an index out of range); NaN and infinity are data.
absl::Status MeasureRouting(const RoutingCall& call, bool sample, uint64_t sample_max_bytes,
                            v1::Routing* out);

// Does the same from a device's measurement: `plan` as it was launched, `raw` as it came back,
// `call` as its slot was loaded. If rows were left out of the slot, no_sample_reason states it.
absl::Status FinishRouting(const RoutingCall& call, const RoutingPlan& plan, const RoutingRaw& raw,
                           bool sample, uint64_t sample_max_bytes, v1::Routing* out);

}  // namespace plumbline::probes
