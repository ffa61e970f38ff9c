// Copies tensors into messages and views them there.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor_view.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// Returns the bytes of a packed view; 0 for an absent one. Saturates at UINT64_MAX.
uint64_t PackedBytes(const TensorView& view);

// Copies a host view with any strides to `out`: PackedBytes(view) bytes in C order. The view must
// have a known dtype, no negative extent, and valid memory.
void CopyDense(const TensorView& view, void* out);

// Copies a host view with any strides into a dense C-ordered tensor. The caller has checked the
// view's memory. Returns InvalidArgument for a view of an unknown dtype, a negative extent, or one
// that is not on the host.
absl::Status PackTensor(const TensorView& view, v1::Tensor* out);

// Returns a view of a message's bytes, valid as long as the message is unchanged. Checks dtype,
// rank, extents, that their product does not overflow, and that `data` has exactly this size.
// InvalidArgument begins with `name`. The data need not be aligned.
absl::StatusOr<TensorView> ViewTensor(const v1::Tensor& tensor, std::string_view name);

}  // namespace plumbline
