// Sampled elements and their indices as tensors of messages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor_view.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// [m] u64.
void PackIndices(std::span<const uint64_t> indices, v1::Tensor* out);

// [m] in the tensor's dtype. Errors as GatherSamples.
absl::Status PackSamples(const TensorView& tensor, std::span<const uint64_t> indices,
                         v1::Tensor* out);

// What PackIndices packed; any integer dtype is taken. InvalidArgument for another dtype or rank
// and for negative indices.
absl::StatusOr<std::vector<uint64_t>> IndicesOf(const v1::Tensor& offsets);

}  // namespace plumbline
