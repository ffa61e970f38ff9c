// An in-place update as a message: what CheckUpdate found and, on captured steps, sampled elements.
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

// The sample at SampleIndices(key, count, max_samples); offsets are absent when every element is
// taken. InvalidArgument names the tensor that does not fit.
absl::Status FillUpdateSample(const UpdateInput& in, const UpdateOptions& options, v1::Update* out);

// The same of elements that were read elsewhere: in each present view those of one sample, [m].
absl::Status FillUpdateSample(const UpdateInput& elements, const TensorSample& sample,
                              v1::Update* out);

// Summary, config.dtype and config.moment_dtype of tensors (only described: their data is not read)
// and what was found of them.
void FillUpdateFigures(const UpdateInput& in, const UpdateStats& stats, v1::Update* out);

// Summary, sample where asked for, config.dtype and config.moment_dtype. The caller fills the rest
// of the configuration.
absl::Status FillUpdate(const UpdateInput& in, const UpdateOptions& options, v1::Update* out);

}  // namespace plumbline
