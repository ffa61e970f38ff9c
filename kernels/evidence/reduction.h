// The samples of one collective: the same elements before it (its inputs) and after it (its
// output). Two calls, because a collective usually works in place.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "kernels/core/sample_index.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// Before the collective: samples this rank's buffer (any shape, flattened in C order) at
// SampleIndices(key, count, max_samples). Sets sample.inputs [m], sample.offsets (absent when every
// element is taken) and, where they are not set, call.count and call.wire_dtype. Errors as
// GatherSamples.
absl::Status SampleReductionInput(const TensorView& buffer, uint64_t key, uint32_t max_samples,
                                  v1::Reduction* out);

// The same for buffers of all N ranks in one view [N, ...]: inputs [N,m]; also sets group_size
// where it is 0. For simulations, and for a running sum's addends.
absl::Status SampleReductionInputs(const TensorView& buffers, uint64_t key, uint32_t max_samples,
                                   v1::Reduction* out);

// After it: samples `buffer` at the offsets that the inputs were taken from. InvalidArgument when
// its count is another than the inputs', FailedPrecondition when no input was sampled.
absl::Status SampleReductionOutput(const TensorView& buffer, v1::Reduction* out);

}  // namespace plumbline
