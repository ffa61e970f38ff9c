// Converts the state of a tensor to a message: its statistics and, on captured steps, a few values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "kernels/core/sample_index.h"
#include "kernels/tensor/sample.h"
#include "kernels/tensor/stats.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

struct TensorStateOptions {
  std::string role;  // "weight", "gradient", "activation", "probabilities", "positions" or ""
  DType target_format = DType::kUnspecified;  // dtype in which the values will be stored
  std::string replicas;                       // group of ranks that hold copies; "": not declared
  bool with_sample = false;
  uint64_t key = 0;  // SampleKey of the site and step
  uint32_t max_samples = kMaxSamples;
  uint64_t max_bytes = uint64_t{8} << 20;  // of the sample's values
  int threads = 1;
};

void FillTensorSummary(const TensorStats& stats, v1::TensorSummary* out);

// Fills `sample` (or no_sample_reason, which is no error). For the roles "probabilities" and
// "positions" it takes consecutive whole rows of the last axis, as many as hold max_samples values,
// at least one, from a row that `key` selects. For others it takes the elements at
// SampleIndices(key, count, max_samples), with their offsets. Errors as GatherSamples.
absl::Status FillTensorSample(const TensorView& tensor, const TensorStateOptions& options,
                              v1::TensorState* out);

// Does the same with elements that the caller has read: sample.elements() of them, dense.
void FillTensorSample(const TensorSample& sample, DType dtype, const std::byte* elements,
                      v1::TensorState* out);

// Fills everything except the sample, from the description of a tensor (its data are not read) and
// its statistics.
void FillTensorFigures(const TensorView& tensor, const TensorStats& stats,
                       const TensorStateOptions& options, v1::TensorState* out);

// Fills everything: MeasureTensor, and the sample if options.with_sample is set.
absl::Status FillTensorState(const TensorView& tensor, const TensorStateOptions& options,
                             v1::TensorState* out);

// Reads the summary back, for a tensor of `dtype`; unknown fields and fits are left out.
TensorStats StatsOf(const v1::TensorSummary& summary, DType dtype);

}  // namespace plumbline
