// Copies a few elements of a tensor, packed: the content of a sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "kernels/core/sample_index.h"

namespace plumbline {

// Copies the elements at `indices` (C order in the tensor's shape, any order, repeats allowed) to
// `out`, dense, in the tensor's dtype: indices.size() * DTypeSize bytes. Host tensors of any
// strides and alignment. Returns InvalidArgument for an index beyond the tensor (then `out` must
// not be used) and for a tensor that is no host tensor of a known dtype. Thread-safe.
absl::Status GatherSamples(const TensorView& tensor, std::span<const uint64_t> indices,
                           std::byte* out);

// Writes the out.size() <= count indices that `key` draws from [0, count), ascending.
void DrawIndices(uint64_t key, uint64_t count, std::span<uint64_t> out);

// Returns min(count, most) indices.
std::vector<uint64_t> SampleIndices(uint64_t key, uint64_t count, uint32_t most = kMaxSamples);

}  // namespace plumbline
