// Packs sampled elements and their indices as tensors of messages.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// Packs indices as [m] u64.
void PackIndices(std::span<const uint64_t> indices, v1::Tensor* out);

// Packs elements as [m] in the tensor's dtype. Errors as GatherSamples.
absl::Status PackSamples(const TensorView& tensor, std::span<const uint64_t> indices,
                         v1::Tensor* out);

}  // namespace plumbline
