// The tensor probe: one tensor at one moment. A small tensor is copied on the caller's thread and
// measured on the drain thread; a larger one is measured on the caller's; one on a device, there,
// but for integers, which are copied off it.
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

// Why the call cannot be measured, from shapes and types alone.
absl::Status CheckCall(const TensorCall& call);

// Bytes of a sample and of a summary in evidence, from the shape alone.
uint64_t SampleBytes(const TensorCall& call);
uint64_t SummaryBytes(const TensorCall& call);

// The slot that holds the call (probes/calls/call_slot.h).
size_t SlotBytes(const TensorCall& call);
void StoreCall(const TensorCall& call, std::byte* slot);
TensorCall LoadTensorCall(const std::byte* slot);

// Of a tensor on a device that is measured on the host: what brings it (calls/carried.h). False:
// it cannot be copied.
bool Carry(const TensorCall& call, std::vector<CarriedCopy>* copies);

// Fills tensor, sample_size and exercised.
absl::Status Measure(const TensorCall& call, const MeasureOptions& options, v1::Evidence* out);
// The same bytes, of what a device left behind.
absl::Status Measure(const TensorJob& job, v1::Evidence* out);

}  // namespace plumbline::probes
