// Converts an in-place update to a message: the result of CheckUpdate and, on captured steps,
// sampled elements.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "kernels/core/sample_index.h"
#include "kernels/tensor/sample.h"
#include "kernels/update/check.h"
#include "kernels/update/input.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

struct UpdateOptions {
  bool with_sample = false;
  uint64_t key = 0;  // SampleKey of the site and step
  uint32_t max_samples = kMaxSamples;
  int threads = 1;
};

void FillUpdateSummary(const UpdateStats& stats, v1::UpdateSummary* out);
UpdateStats StatsOf(const v1::UpdateSummary& summary);

// Fills the sample at SampleIndices(key, count, max_samples); offsets are absent if every element
// is taken. Returns InvalidArgument with the tensor that does not fit.
absl::Status FillUpdateSample(const UpdateInput& in, const UpdateOptions& options, v1::Update* out);

// Does the same with elements that the caller has read: each present view has those of one sample,
// [m].
absl::Status FillUpdateSample(const UpdateInput& elements, const TensorSample& sample,
                              v1::Update* out);

// Fills summary, config.dtype and config.moment_dtype from the description of tensors (their data
// are not read) and their statistics.
void FillUpdateFigures(const UpdateInput& in, const UpdateStats& stats, v1::Update* out);

// Fills summary, the sample if requested, config.dtype and config.moment_dtype. The caller fills
// the other fields of the configuration.
absl::Status FillUpdate(const UpdateInput& in, const UpdateOptions& options, v1::Update* out);

}  // namespace plumbline
