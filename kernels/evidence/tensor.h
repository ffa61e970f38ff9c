// Tensors in and out of messages.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor_view.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// Bytes of a view once packed; 0 for an absent one. Saturates at UINT64_MAX.
uint64_t PackedBytes(const TensorView& view);

// Copies a host view, whatever its strides, to `out`: PackedBytes(view) bytes in C order. The view
// has a known dtype, no negative extent, and its memory is there.
void CopyDense(const TensorView& view, void* out);

// Copies a host view, whatever its strides, into a dense C-ordered tensor. The caller has checked
// that the view's memory is there; InvalidArgument for a view of no known dtype, a negative extent,
// or one that is not on the host.
absl::Status PackTensor(const TensorView& view, v1::Tensor* out);

// A view of a message's bytes, valid as long as the message is unchanged. Everything is checked:
// dtype, rank, extents, that their product does not overflow, and that `data` holds exactly that.
// InvalidArgument begins with `name`. The data need not be aligned.
absl::StatusOr<TensorView> ViewTensor(const v1::Tensor& tensor, std::string_view name);

}  // namespace plumbline
