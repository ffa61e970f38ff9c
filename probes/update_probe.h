// The update probe: one update in place. Small tensors are copied on the caller's thread and
// checked on the drain thread, larger ones are checked on the caller's. Of a call that hands over
// sampled elements alone nothing is said of the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/update_evidence.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/measure.h"

namespace plumbline::probes {

// As the trainer declared it (plumbline_update_t); views and texts are borrowed.
struct UpdateCall {
  UpdateInput input;
  TensorView offsets;  // absent: whole tensors
  std::string_view optimizer;
  struct Fields {
    double lr = 0;
    double beta2 = 0;
    double eps = 0;
    double decay = 0;
    uint64_t count = 0;
    int32_t eps_dtype = 0;  // DType
  } fields;
};

absl::Status CheckCall(const UpdateCall& call);

uint64_t SampleBytes(const UpdateCall& call);
uint64_t SummaryBytes(const UpdateCall& call);

size_t SlotBytes(const UpdateCall& call);
void StoreCall(const UpdateCall& call, std::byte* slot);
UpdateCall LoadUpdateCall(const std::byte* slot);

// Fills update, sample_size and exercised. Sampled elements handed over at a step that keeps none
// are left out. InvalidArgument: an offset beyond count.
absl::Status Measure(const UpdateCall& call, const MeasureOptions& options, v1::Evidence* out);

}  // namespace plumbline::probes
