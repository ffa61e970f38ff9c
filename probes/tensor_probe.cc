#include "probes/tensor_probe.h"

#include <algorithm>
#include <array>
#include <string>

#include "kernels/evidence/tensor_state.h"
#include "probes/calls/call_slot.h"
#include "probes/calls/tensor_checks.h"

namespace plumbline::probes {
namespace {

struct TensorParts {
  explicit TensorParts(const TensorCall& call)
      : fields(call.target_format),
        texts{call.role, call.replicas},
        all{std::as_bytes(std::span(&fields, 1)), texts, std::span(&call.values, 1)} {}
  int32_t fields;
  std::array<std::string_view, 2> texts;
  CallParts all;
};

// Returns the declared attributes of the tensor, and sets the sample size.
TensorStateOptions StateOf(const TensorCall& call, v1::Evidence* out) {
  out->set_sample_size(Elements(call.values));
  out->set_exercised(out->sample_size() > 0 ? v1::EXERCISED_YES : v1::EXERCISED_NO);
  TensorStateOptions state;
  state.role = call.role;
  state.target_format = static_cast<DType>(call.target_format);
  state.replicas = call.replicas;
  return state;
}

}  // namespace

absl::Status CheckCall(const TensorCall& call) {
  if (!call.values.present()) return absl::InvalidArgumentError("values: required, absent");
  absl::Status s = CheckTensor("values", call.values, Content::kNumber, Place::kAny);
  if (s.ok()) s = CheckDeclared("target_format", call.target_format);
  if (s.ok()) s = CheckText("role", call.role);
  return s.ok() ? CheckText("replicas", call.replicas) : s;
}

uint64_t SampleBytes(const TensorCall& call) {
  const TensorView& v = call.values;
  const uint64_t size = DTypeSize(v.dtype);
  if (!KeepsRows(call.role)) return std::min<uint64_t>(Elements(v), kTensorSamples) * (size + 8);
  const auto row =
      v.rank == 0 ? 1 : static_cast<uint64_t>(v.shape[static_cast<size_t>(v.rank - 1)]);
  return std::min(Elements(v), std::max<uint64_t>(row, kMaxSamples)) * size;
}

uint64_t SummaryBytes(const TensorCall& call) {
  // Counts and doubles; for floating tensors also exponents and fits.
  constexpr uint64_t kInteger = 120;
  constexpr uint64_t kFloating = 420;
  return IsFloating(call.values.dtype) ? kFloating : kInteger;
}

size_t SlotBytes(const TensorCall& call) { return CallBytes(TensorParts(call).all); }

void StoreCall(const TensorCall& call, std::byte* slot) { StoreCall(TensorParts(call).all, slot); }

bool Carry(const TensorCall& call, std::vector<CarriedCopy>* copies) {
  return CarryTensors(TensorParts(call).all, copies);
}

TensorCall LoadTensorCall(const std::byte* slot) {
  CallReader reader(slot);
  TensorCall call;
  call.target_format = reader.fields<int32_t>();
  call.role = reader.NextText();
  call.replicas = reader.NextText();
  call.values = reader.NextTensor();
  return call;
}

absl::Status Measure(const TensorCall& call, const MeasureOptions& options, v1::Evidence* out) {
  TensorStateOptions state = StateOf(call, out);
  state.with_sample = options.sampled;
  state.key = options.key;
  state.max_samples = KeepsRows(call.role) ? kMaxSamples : kTensorSamples;
  state.max_bytes = options.sample_max_bytes;
  return FillTensorState(call.values, state, out->mutable_tensor());
}

absl::Status Measure(const TensorJob& job, v1::Evidence* out) {
  const TensorCall& call = job.call;
  v1::TensorState* tensor = out->mutable_tensor();
  FillTensorFigures(call.values, FinishItem(job.item, job.results()), StateOf(call, out), tensor);
  if (job.left_out) {
    tensor->set_no_sample_reason(NoRoom(SampleBytes(call)));
  } else if (job.sampled) {
    FillTensorSample(job.sample, call.values.dtype, job.elements(), tensor);
  }
  return absl::OkStatus();
}

}  // namespace plumbline::probes
