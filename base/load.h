// Reads element i of a flat array by its dtype. Host and device. Host data need not be aligned
// (tensors inside messages and files are not).
#pragma once

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/half.h"
#include "base/tensor_view.h"

namespace plumbline {

// Device data are aligned, as tensors there are: a copy by bytes would be four loads.
template <typename T>
PLUMB_HD inline T LoadRaw(const void* data, int64_t i) {
#if defined(__CUDA_ARCH__)
  return static_cast<const T*>(data)[i];
#else
  T v;
  memcpy(&v, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
#endif
}

// Returns element i (counted in elements, may be negative) as a double; NaN for unknown dtypes.
// Exact except for 64-bit integers beyond 2^53, which are rounded.
PLUMB_HD inline double LoadDouble(const void* data, DType t, int64_t i) {
  switch (t) {
    case DType::kF64:
      return LoadRaw<double>(data, i);
    case DType::kF32:
      return LoadRaw<float>(data, i);
    case DType::kF16:
      return F16ToFloat(LoadRaw<uint16_t>(data, i));
    case DType::kBF16:
      return BF16ToFloat(LoadRaw<uint16_t>(data, i));
    case DType::kE4M3:
      return E4M3ToFloat(LoadRaw<uint8_t>(data, i));
    case DType::kE5M2:
      return E5M2ToFloat(LoadRaw<uint8_t>(data, i));
    case DType::kI64:
      return static_cast<double>(LoadRaw<int64_t>(data, i));
    case DType::kI32:
      return LoadRaw<int32_t>(data, i);
    case DType::kI16:
      return LoadRaw<int16_t>(data, i);
    case DType::kI8:
      return LoadRaw<int8_t>(data, i);
    case DType::kU64:
      return static_cast<double>(LoadRaw<uint64_t>(data, i));
    case DType::kU32:
      return LoadRaw<uint32_t>(data, i);
    case DType::kU16:
      return LoadRaw<uint16_t>(data, i);
    case DType::kU8:
      return LoadRaw<uint8_t>(data, i);
    case DType::kBool:
      return LoadRaw<uint8_t>(data, i) != 0 ? 1 : 0;
    case DType::kUnspecified:
      break;
  }
  return __builtin_nan("");
}

// Returns element i of an integer or bool array. A u64 above INT64_MAX gives INT64_MAX, so that
// range checks fail for it. Returns 0 for floating and unknown dtypes.
PLUMB_HD inline int64_t LoadInt64(const void* data, DType t, int64_t i) {
  switch (t) {
    case DType::kI64:
      return LoadRaw<int64_t>(data, i);
    case DType::kI32:
      return LoadRaw<int32_t>(data, i);
    case DType::kI16:
      return LoadRaw<int16_t>(data, i);
    case DType::kI8:
      return LoadRaw<int8_t>(data, i);
    case DType::kU64: {
      const auto v = LoadRaw<uint64_t>(data, i);
      return v > 0x7fffffffffffffffull ? 0x7fffffffffffffffll : static_cast<int64_t>(v);
    }
    case DType::kU32:
      return LoadRaw<uint32_t>(data, i);
    case DType::kU16:
      return LoadRaw<uint16_t>(data, i);
    case DType::kU8:
      return LoadRaw<uint8_t>(data, i);
    case DType::kBool:
      return LoadRaw<uint8_t>(data, i) != 0 ? 1 : 0;
    default:
      return 0;
  }
}

// Returns element [i] or [i,j] of a host view, by its strides. The indices must be within the
// view's shape.
inline double DoubleAt(const TensorView& v, int64_t i) {
  return LoadDouble(v.data, v.dtype, i * v.stride[0]);
}
inline double DoubleAt(const TensorView& v, int64_t i, int64_t j) {
  return LoadDouble(v.data, v.dtype, i * v.stride[0] + j * v.stride[1]);
}
inline int64_t Int64At(const TensorView& v, int64_t i) {
  return LoadInt64(v.data, v.dtype, i * v.stride[0]);
}
inline int64_t Int64At(const TensorView& v, int64_t i, int64_t j) {
  return LoadInt64(v.data, v.dtype, i * v.stride[0] + j * v.stride[1]);
}

}  // namespace plumbline
