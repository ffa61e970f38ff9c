// The tensor probe: one tensor at one moment. A small tensor is copied on the caller's thread and
// measured on the drain thread; a larger one is measured on the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/measure.h"

namespace plumbline::probes {

// As the trainer declared it; views and texts are borrowed.
struct TensorCall {
  TensorView values;
  int32_t target_format = 0;  // DType
  std::string_view role;
  std::string_view replicas;
};

// Why the call cannot be measured, from shapes and types alone; Unavailable: on a device.
absl::Status CheckCall(const TensorCall& call);

// Bytes of a sample and of a summary in evidence, from the shape alone.
uint64_t SampleBytes(const TensorCall& call);
uint64_t SummaryBytes(const TensorCall& call);

// The slot that holds the call (probes/call_slot.h).
size_t SlotBytes(const TensorCall& call);
void StoreCall(const TensorCall& call, std::byte* slot);
TensorCall LoadTensorCall(const std::byte* slot);

// Fills tensor, sample_size and exercised.
absl::Status Measure(const TensorCall& call, const MeasureOptions& options, v1::Evidence* out);

}  // namespace plumbline::probes
