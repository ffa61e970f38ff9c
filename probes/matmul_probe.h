// The matrix product probe: some rows of A, some columns of B, and the elements of D (and C) at
// their intersections. Only those are copied, on the caller's thread or by the device.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/matmul_call.h"

namespace plumbline::probes {

// Checks shapes, dtypes and texts; the tensors may be on a device.
absl::Status CheckCall(const MatmulCall& call);

// Replaces the call's tensors by those that the step keeps, in `memory`. If it keeps none, the call
// then has none. For host tensors; CheckCall was OK and Complete was called.
void Sample(const MeasureOptions& options, std::vector<std::byte>* memory, MatmulCall* call);

// For a completed call, before Sample.
uint64_t SampleBytes(const MatmulCall& call);
uint64_t SummaryBytes(const MatmulCall& call);

size_t SlotBytes(const MatmulCall& call);
void StoreCall(const MatmulCall& call, std::byte* slot);
MatmulCall LoadMatmulCall(const std::byte* slot);

// Fills matmul, sample_size and exercised from a sampled call.
absl::Status Measure(const MatmulCall& call, const MeasureOptions& options, v1::Evidence* out);

}  // namespace plumbline::probes
