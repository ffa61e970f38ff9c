// Gathers sampled elements of many tensors by one launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor_view.h"
#include "kernels/core/batch_shape.h"
#include "kernels/core/status_declared.h"
#include "kernels/core/strided.h"

namespace plumbline {

struct GatherItem {
  const void* data;
  StridedAxes axes;
  int64_t samples;
  int64_t first_span;  // samples of the tensors before this one
  uint64_t result;     // destination of its elements, in bytes
  uint32_t size;       // of one element
  uint32_t padding;
};

// The number of gathers in the arguments of one launch (core/batch_launches.h).
inline constexpr int kGathersOfLaunch = 23;

struct GatherRequest {
  TensorView tensor;
  std::span<const uint64_t> indices;  // in C order; owned by the caller until Plan returns
};

// Plans one checked tensor: everything except its place in a batch.
GatherItem PlanItem(const TensorView& tensor, int64_t samples);
// Returns the bytes of its elements: every tensor begins at an alignment for any element.
inline uint64_t GatherBytes(DType t, int64_t samples) {
  return (static_cast<uint64_t>(samples) * DTypeSize(t) + 7) / 8 * 8;
}

// The gathers of one launch. Immutable, copyable; the caller owns the views' memory.
class GatherBatch {
 public:
  // Plans tensors of any dtype and strides, all on one device (or, for tests, the host). Returns
  // InvalidArgument with the number of the tensor, or an index beyond it.
  static absl::StatusOr<GatherBatch> Plan(std::span<const GatherRequest> requests);

  const std::vector<GatherItem>& items() const { return items_; }
  const std::vector<uint64_t>& indices() const { return indices_; }
  // Its items are the table, then all indices.
  const BatchShape& shape() const { return shape_; }

  // Writes the items to the begin of a launch's staging memory.
  void Put(std::byte* staging) const;

  // Returns the elements of each tensor, dense, in the order of its indices: the result of
  // GatherSamples.
  std::vector<std::vector<std::byte>> Finish(const std::byte* results) const;

 private:
  std::vector<GatherItem> items_;
  std::vector<uint64_t> indices_;
  BatchShape shape_;
};

// Copies sample `i` of the item: the work of a device thread.
PLUMB_HD inline void GatherOne(const GatherItem& item, int64_t i, uint64_t index,
                               unsigned char* results) {
  const int64_t from = item.axes.Offset(static_cast<int64_t>(index));
  unsigned char* to = results + item.result;
  switch (item.size) {
    case 8:
      reinterpret_cast<uint64_t*>(to)[i] = static_cast<const uint64_t*>(item.data)[from];
      break;
    case 4:
      reinterpret_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(item.data)[from];
      break;
    case 2:
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<const uint16_t*>(item.data)[from];
      break;
    default:
      to[i] = static_cast<const unsigned char*>(item.data)[from];
  }
}

}  // namespace plumbline
