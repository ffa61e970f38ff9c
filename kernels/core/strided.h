// Accesses elements of a tensor by their index in C order, for any strides. For kernels that treat
// a tensor as a row of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/tensor_view.h"
#include "kernels/core/status_declared.h"

namespace plumbline {

// The axes of a view. Axes that can be walked as one are joined, and those of extent 1 are left
// out. At least one axis. For host and device.
struct StridedAxes {
  int rank = 1;
  int64_t shape[TensorView::kMaxRank] = {0};
  int64_t stride[TensorView::kMaxRank] = {1};  // in elements

  PLUMB_HD bool dense() const { return rank == 1 && (stride[0] == 1 || shape[0] <= 1); }

  // Returns the offset of element `index`, in elements from the view's data.
  PLUMB_HD int64_t Offset(int64_t index) const {
    int64_t offset = 0;
    for (int i = rank - 1; i > 0; --i) {
      offset += index % shape[i] * stride[i];
      index /= shape[i];
    }
    return offset + index * stride[0];
  }
};

// The largest number of elements of one tensor: the sizes of indices and sums depend on it.
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

// Checks dtype, rank, extents and that there are data; sets `count` to the number of elements.
// Errors (InvalidArgument) begin with `name`. The view may be on any device.
absl::Status CheckTensor(const TensorView& view, std::string_view name, int64_t* count);
absl::Status CheckHostTensor(const TensorView& view, std::string_view name, int64_t* count);

StridedAxes AxesOf(const TensorView& view);

// Reads runs of consecutive elements of a checked host view.
class RunReader {
 public:
  explicit RunReader(const TensorView& view);

  // Returns elements [first, first + count), dense, of any alignment: in place if they are dense,
  // otherwise copied to `buffer`, which has space for them.
  const std::byte* Read(int64_t first, int64_t count, std::byte* buffer) const;

 private:
  void Gather(int64_t first, int64_t count, std::byte* out) const;

  const std::byte* data_;
  size_t size_;
  StridedAxes axes_;
};

}  // namespace plumbline
