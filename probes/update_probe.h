// The update probe: one update in place. Small tensors are copied on the caller's thread and
// checked on the drain thread; larger ones are checked on the caller's thread, device tensors on
// their device. If a call passes only sampled elements, nothing is recorded about the others; on a
// device they are copied off it, as they are few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/carried.h"
#include "probes/calls/measure.h"
#include "probes/calls/update_call.h"
#include "probes/device/job.h"

namespace plumbline::probes {

// Checks whether the call can be measured, from shapes and types alone.
absl::Status CheckCall(const UpdateCall& call);

// Returns the copies for a call that passes elements on a device. In a step that keeps no elements
// these are only the offsets, if they are on the device too, because offsets are checked when the
// call is measured. CheckCall was OK. Returns InvalidArgument for a host offset beyond count.
absl::Status Carry(const UpdateCall& call, const MeasureOptions& options,
                   std::vector<CarriedCopy>* copies);

uint64_t SampleBytes(const UpdateCall& call);
uint64_t SummaryBytes(const UpdateCall& call);

size_t SlotBytes(const UpdateCall& call);
void StoreCall(const UpdateCall& call, std::byte* slot);
UpdateCall LoadUpdateCall(const std::byte* slot);

// Fills update, sample_size and exercised. Sampled elements that are passed at a step that keeps
// none are left out. Returns InvalidArgument for an offset beyond count.
absl::Status Measure(const UpdateCall& call, const MeasureOptions& options, v1::Evidence* out);
// Fills the same bytes from a device's results.
absl::Status Measure(const UpdateJob& job, v1::Evidence* out);

}  // namespace plumbline::probes
