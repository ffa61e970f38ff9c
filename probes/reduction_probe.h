// The reduction probe: one rank's input and output of a collective, at the step's sampled elements.
// Only those are copied, on the caller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/carried.h"
#include "probes/calls/measure.h"

namespace plumbline::probes {

// As the trainer declared it (plumbline_reduction_t); views and texts are borrowed.
struct ReductionCall {
  TensorView input;
  TensorView output;
  TensorView offsets;     // absent: input and output are whole
  TensorView ring_order;  // [n] u32
  std::string_view group, algorithm, transport;
  struct Fields {
    uint64_t sequence = 0;
    uint64_t count = 0;
    uint64_t chunk = 0;
    double prescale = 0;
    double postscale = 0;
    int32_t op = 0;          // v1::ReductionCall::Op
    int32_t wire_dtype = 0;  // DType
    uint32_t group_size = 0;
    uint32_t group_rank = 0;
    uint32_t channels = 0;
    uint32_t root = 0;
    bool sequence_known = false;
    bool variable_count = false;
  } fields;
  std::string_view no_sample_reason;
};

absl::Status CheckCall(const ReductionCall& call);

// Sets count and wire_dtype if the tensors determine them and the caller did not give them.
void Complete(ReductionCall* call);

// Memory of a call's sampled elements; reused from call to call.
struct ReductionScratch {
  std::vector<uint64_t> offsets;
  std::vector<uint32_t> narrow;
  std::vector<std::byte> input, output;
};

// Replaces the call's tensors by the sampled elements: from whole buffers, the elements at the
// site's offsets; if the caller passed elements, all of these. If the step keeps none, or if they
// exceed the bytes, the call then has none. CheckCall was OK and Complete was called. Returns
// InvalidArgument for an offset beyond count.
absl::Status Sample(const MeasureOptions& options, ReductionScratch* scratch, ReductionCall* call);

// The copies from a device that a call's slot needs. The indices are the scratch's offsets.
struct ReductionCarry {
  std::vector<CarriedCopy> copies;
  std::vector<CarriedGather> gathers;

  bool empty() const { return copies.empty() && gathers.empty(); }
};

// Does the work of Sample for tensors on a device: the call's tensors are then those of its slot,
// not yet copied. Empty: the step keeps none. Offsets on the device are checked when the call is
// measured.
absl::Status Carry(const MeasureOptions& options, ReductionScratch* scratch, ReductionCall* call,
                   ReductionCarry* carry);

// For a call whose tensors are complete, before Sample.
uint64_t SampleBytes(const ReductionCall& call);
uint64_t SummaryBytes(const ReductionCall& call);

size_t SlotBytes(const ReductionCall& call);
void StoreCall(const ReductionCall& call, std::byte* slot);
ReductionCall LoadReductionCall(const std::byte* slot);

// Fills reduction, sample_size and exercised from a sampled call. Returns InvalidArgument as Sample
// does.
absl::Status Measure(const ReductionCall& call, const MeasureOptions& options, v1::Evidence* out);

}  // namespace plumbline::probes
