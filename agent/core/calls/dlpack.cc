#include "agent/core/calls/dlpack.h"

namespace plumbline::agent {
namespace {

DType TypeOf(const DLDataType& t) {
  switch (t.code * 1000 + t.bits) {
    case PLUMBLINE_DL_FLOAT * 1000 + 64:
      return DType::kF64;
    case PLUMBLINE_DL_FLOAT * 1000 + 32:
      return DType::kF32;
    case PLUMBLINE_DL_FLOAT * 1000 + 16:
      return DType::kF16;
    case PLUMBLINE_DL_BFLOAT * 1000 + 16:
      return DType::kBF16;
    case PLUMBLINE_DL_FLOAT8_E4M3FN * 1000 + 8:
      return DType::kE4M3;
    case PLUMBLINE_DL_FLOAT8_E5M2 * 1000 + 8:
      return DType::kE5M2;
    case PLUMBLINE_DL_INT * 1000 + 64:
      return DType::kI64;
    case PLUMBLINE_DL_INT * 1000 + 32:
      return DType::kI32;
    case PLUMBLINE_DL_INT * 1000 + 16:
      return DType::kI16;
    case PLUMBLINE_DL_INT * 1000 + 8:
      return DType::kI8;
    case PLUMBLINE_DL_UINT * 1000 + 64:
      return DType::kU64;
    case PLUMBLINE_DL_UINT * 1000 + 32:
      return DType::kU32;
    case PLUMBLINE_DL_UINT * 1000 + 16:
      return DType::kU16;
    case PLUMBLINE_DL_UINT * 1000 + 8:
      return DType::kU8;
    case PLUMBLINE_DL_BOOL * 1000 + 8:
      return DType::kBool;
    default:
      return DType::kUnspecified;
  }
}

absl::Status Bad(const char* name, const std::string& found, const std::string& expected) {
  return absl::InvalidArgumentError(std::string(name) + ": expected " + expected + ", found " +
                                    found);
}

absl::Status SetPlace(const DLTensor& t, const char* name, TensorView* view) {
  switch (static_cast<int>(t.device.device_type)) {
    case PLUMBLINE_DL_CPU:
    case PLUMBLINE_DL_CUDA_HOST:
      view->device = -1;
      return absl::OkStatus();
    case PLUMBLINE_DL_CUDA:
    case PLUMBLINE_DL_CUDA_MANAGED:
      view->device = t.device.device_id < 0 ? 0 : t.device.device_id;
      return absl::OkStatus();
    default:
      return Bad(name, "device type " + std::to_string(static_cast<int>(t.device.device_type)),
                 "a host or CUDA tensor");
  }
}

// Checks that the element count and every offset fit: a view is walked with 64-bit arithmetic.
absl::Status SetShape(const DLTensor& t, const char* name, TensorView* view) {
  int64_t count = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    const auto a = static_cast<size_t>(i);
    if (t.shape[i] < 0) return Bad(name, "extent " + std::to_string(t.shape[i]), "extents >= 0");
    view->shape[a] = t.shape[i];
    view->stride[a] = t.strides != nullptr ? t.strides[i] : count;
    if (__builtin_mul_overflow(count, t.shape[i] == 0 ? 1 : t.shape[i], &count) ||
        count > (int64_t{1} << 48)) {
      return Bad(name, "more", "at most 2^48 elements");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ViewOf(const DLTensor* tensor, const char* name, TensorView* view) {
  *view = TensorView();
  if (tensor == nullptr) return absl::OkStatus();
  const DLTensor& t = *tensor;
  if (t.ndim < 0 || t.ndim > TensorView::kMaxRank) {
    return Bad(name, "rank " + std::to_string(t.ndim), "rank 0 to 8");
  }
  if (t.ndim > 0 && t.shape == nullptr) return Bad(name, "no shape", "a shape");
  view->dtype = TypeOf(t.dtype);
  if (view->dtype == DType::kUnspecified || t.dtype.lanes != 1) {
    return Bad(name,
               "DLPack type code " + std::to_string(t.dtype.code) + " of " +
                   std::to_string(t.dtype.bits) + " bits, " + std::to_string(t.dtype.lanes) +
                   " lanes",
               "a floating, integer or bool type of one lane");
  }
  view->rank = t.ndim;
  view->data = t.data == nullptr ? nullptr : static_cast<const char*>(t.data) + t.byte_offset;
  if (absl::Status s = SetPlace(t, name, view); !s.ok()) return s;
  return SetShape(t, name, view);
}

}  // namespace plumbline::agent
