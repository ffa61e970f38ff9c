#include "kernels/evidence/reduction.h"

#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/strided.h"
#include "kernels/evidence/sample.h"
#include "kernels/sample/gather.h"

namespace plumbline {
namespace {

void NoteCall(const TensorView& buffer, uint64_t count, v1::ReductionCall* call) {
  if (call->count() == 0) call->set_count(count);
  if (call->wire_dtype() == v1::DTYPE_UNSPECIFIED) {
    call->set_wire_dtype(static_cast<v1::DType>(buffer.dtype));
  }
}

// The indices, noted as offsets where they are not all.
std::vector<uint64_t> Choose(uint64_t key, uint64_t count, uint32_t max_samples,
                             v1::ReductionSample* sample) {
  std::vector<uint64_t> indices = SampleIndices(key, count, max_samples);
  if (indices.size() < count) PackIndices(indices, sample->mutable_offsets());
  return indices;
}

absl::StatusOr<std::vector<uint64_t>> Chosen(const v1::ReductionSample& sample) {
  if (sample.has_offsets()) return IndicesOf(sample.offsets());
  const v1::Tensor& inputs = sample.inputs();
  const int64_t m = inputs.shape_size() == 0 ? 0 : inputs.shape(inputs.shape_size() - 1);
  std::vector<uint64_t> indices(static_cast<size_t>(m));
  std::iota(indices.begin(), indices.end(), uint64_t{0});
  return indices;
}

}  // namespace

absl::Status SampleReductionInput(const TensorView& buffer, uint64_t key, uint32_t max_samples,
                                  v1::Reduction* out) {
  out->clear_sample();
  out->clear_no_sample_reason();
  int64_t count = 0;
  if (absl::Status status = CheckHostTensor(buffer, "inputs", &count); !status.ok()) return status;
  NoteCall(buffer, static_cast<uint64_t>(count), out->mutable_call());
  v1::ReductionSample* sample = out->mutable_sample();
  const std::vector<uint64_t> indices =
      Choose(key, static_cast<uint64_t>(count), max_samples, sample);
  return PackSamples(buffer, indices, sample->mutable_inputs());
}

absl::Status SampleReductionInputs(const TensorView& buffers, uint64_t key, uint32_t max_samples,
                                   v1::Reduction* out) {
  out->clear_sample();
  out->clear_no_sample_reason();
  int64_t elements = 0;
  if (absl::Status status = CheckHostTensor(buffers, "inputs", &elements); !status.ok()) {
    return status;
  }
  if (buffers.rank == 0 || buffers.shape[0] == 0) {
    return absl::InvalidArgumentError("inputs: expected [N, ...] with N >= 1, found none");
  }
  const auto ranks = static_cast<uint64_t>(buffers.shape[0]);
  const uint64_t count = static_cast<uint64_t>(elements) / ranks;
  v1::ReductionCall* call = out->mutable_call();
  NoteCall(buffers, count, call);
  if (call->group_size() == 0) call->set_group_size(static_cast<uint32_t>(ranks));
  v1::ReductionSample* sample = out->mutable_sample();
  const std::vector<uint64_t> indices = Choose(key, count, max_samples, sample);
  std::vector<uint64_t> all;
  all.reserve(indices.size() * ranks);
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    for (const uint64_t i : indices) all.push_back(rank * count + i);
  }
  v1::Tensor* inputs = sample->mutable_inputs();
  if (absl::Status status = PackSamples(buffers, all, inputs); !status.ok()) return status;
  inputs->set_shape(0, static_cast<int64_t>(ranks));
  inputs->add_shape(static_cast<int64_t>(indices.size()));
  return absl::OkStatus();
}

absl::Status SampleReductionOutput(const TensorView& buffer, v1::Reduction* out) {
  int64_t count = 0;
  if (absl::Status status = CheckHostTensor(buffer, "output", &count); !status.ok()) return status;
  if (!out->sample().has_inputs()) {
    return absl::FailedPreconditionError("output: expected sampled inputs, found none");
  }
  if (static_cast<uint64_t>(count) != out->call().count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("output: expected ", out->call().count(), " elements, found ", count));
  }
  const absl::StatusOr<std::vector<uint64_t>> indices = Chosen(out->sample());
  if (!indices.ok()) return indices.status();
  return PackSamples(buffer, *indices, out->mutable_sample()->mutable_output());
}

}  // namespace plumbline
