#include "audit/readers/checkpoint/stored_tensor.h"

#include "base/tensor_view.h"
#include "kernels/core/strided.h"

namespace plumbline::audit {

std::string CheckStored(const StoredTensor& t) {
  if (t.shape.size() > TensorView::kMaxRank)
    return "at most 8 axes, found " + std::to_string(t.shape.size());
  if (t.shape.size() != t.stride.size()) {
    return "a stride for each of " + std::to_string(t.shape.size()) + " axes, found " +
           std::to_string(t.stride.size());
  }
  // Number of elements; distance of the furthest element from the first.
  int64_t count = 1, reach = 0;
  bool empty = false;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (t.shape[i] < 0 || t.stride[i] < 0)
      return "extents and strides of at least 0, found a negative one";
    empty |= t.shape[i] == 0;
  }
  if (empty) return "";
  for (size_t i = 0; i < t.shape.size(); ++i) {
    int64_t far = 0;
    if (__builtin_mul_overflow(count, t.shape[i], &count) || count > kMaxElements ||
        __builtin_mul_overflow(t.shape[i] - 1, t.stride[i], &far) ||
        __builtin_add_overflow(reach, far, &reach) || reach > kMaxElements)
      return "fewer than 2^48 elements, found more";
  }
  const uint64_t size = DTypeSize(t.dtype);
  if (size == 0) return "";  // the dtype is not supported
  const uint64_t needs = (static_cast<uint64_t>(reach) + 1) * size;
  if (t.begin < t.first || t.begin > t.last || needs > t.last - t.begin) {
    return std::to_string(needs) + " bytes of its storage from byte " + std::to_string(t.begin) +
           " on, found " + std::to_string(t.begin > t.last ? 0 : t.last - t.begin);
  }
  if (t.bytes() > kFreeBytes + kMostRepeats * (t.last - t.first)) {
    return "a tensor that repeats its storage of " + std::to_string(t.last - t.first) +
           " bytes at most " + std::to_string(kMostRepeats) + " times, found one of " +
           std::to_string(t.bytes()) + " bytes";
  }
  return "";
}

bool IsDense(const StoredTensor& t) {
  int64_t expected = 1;
  for (size_t i = t.shape.size(); i-- > 0;) {
    if (t.shape[i] != 1 && t.stride[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> stride(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    if (__builtin_mul_overflow(stride[i], shape[i], &stride[i - 1])) stride[i - 1] = 0;
  }
  return stride;
}

}  // namespace plumbline::audit
