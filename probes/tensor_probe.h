// The tensor probe: one tensor at one moment. A small tensor is copied on the caller's thread and
// measured on the drain thread; a larger one is measured on the caller's thread. A device tensor is
// measured on its device, except integers, which are copied off it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/carried.h"
#include "probes/calls/measure.h"
#include "probes/calls/tensor_call.h"
#include "probes/device/job.h"

namespace plumbline::probes {

// Checks whether the call can be measured, from shapes and types alone.
absl::Status CheckCall(const TensorCall& call);

// Return the bytes of a sample and of a summary in evidence, from the shape alone.
uint64_t SampleBytes(const TensorCall& call);
uint64_t SummaryBytes(const TensorCall& call);

// Stores the call in a slot (probes/calls/call_slot.h).
size_t SlotBytes(const TensorCall& call);
void StoreCall(const TensorCall& call, std::byte* slot);
TensorCall LoadTensorCall(const std::byte* slot);

// Returns the copies for a device tensor that is measured on the host (calls/carried.h); false if
// it cannot be copied.
bool Carry(const TensorCall& call, std::vector<CarriedCopy>* copies);

// Fills tensor, sample_size and exercised.
absl::Status Measure(const TensorCall& call, const MeasureOptions& options, v1::Evidence* out);
// Fills the same bytes from a device's results.
absl::Status Measure(const TensorJob& job, v1::Evidence* out);

}  // namespace plumbline::probes
