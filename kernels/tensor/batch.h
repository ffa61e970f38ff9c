// Measures many tensors by one launch: the arguments for each, and the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/load.h"
#include "base/tensor_view.h"
#include "kernels/core/batch_shape.h"
#include "kernels/core/status_declared.h"
#include "kernels/core/strided.h"
#include "kernels/core/wide_sum.h"
#include "kernels/tensor/stats.h"
#include "kernels/tensor/totals.h"

namespace plumbline {

// The part of one tensor that one block of threads takes at a time: a tile of tensor/sum_order.h.
inline constexpr int64_t kSpanBytes = int64_t{1} << 16;
PLUMB_HD constexpr int64_t SpanElements(DType t) {
  return kSpanBytes / static_cast<int64_t>(DTypeSize(t));
}

struct TensorItem {
  const void* data;
  int64_t count;
  int64_t first_span;  // spans of the tensors before this one
  uint64_t result;     // place of its TensorRaw, in bytes from the first
  StridedAxes axes;
  DType dtype;
  bool whole;  // exponents and fits are those of all elements
  bool dense;
  bool aligned;  // to four elements
};

// The number of tensors in the arguments of one launch (core/batch_launches.h).
inline constexpr int kTensorsOfLaunch = 15;

// Indices of TensorRaw::counts.
enum TensorCount {
  kCountNan,
  kCountPositiveInf,
  kCountNegativeInf,
  kCountZero,
  kCountSubnormal,
  kCountFits,
  kTensorCounts = kCountFits + 3 * kFormatFits
};
enum FitKind { kFitFlushed, kFitSubnormal, kFitSaturated };
inline constexpr int kPlainFits = 4;  // of kFormatFitTargets; the scaled formats follow
PLUMB_HD constexpr int FitCount(int fit, FitKind kind) { return kCountFits + 3 * fit + kind; }

enum WideKind { kWideSum, kWideMagnitudes, kWideSquares, kWides };

// The figures of one tensor while they are summed; all start as zeros. Exponents follow,
// DeviceExponents(dtype) of them.
struct TensorRaw {
  uint64_t counts[kTensorCounts];
  Digest digest;
  // Order keys of the finite values, with their words in the highest bits: a word without sign has
  // its sign bit set, a word with sign is complemented. The lowest value's key is stored
  // complemented.
  uint64_t highest;
  uint64_t lowest_flipped;
  WideDigits wides[kWides];
};

// The device measures bf16 as f32 words.
constexpr size_t DeviceExponents(DType t) {
  return ExponentsOf(t == DType::kF64 ? t : DType::kF32);
}

// Plans one tensor: everything except its place in a batch, as if it were the only tensor of a
// batch. Errors as TensorBatch::Plan's, beginning with `name`. Allocates nothing if the tensor
// fits. `fits_of_all`: as MeasureTensor's.
absl::Status PlanItem(const TensorView& tensor, std::string_view name, TensorItem* item,
                      int64_t fits_of_all = kFitsOfAll);
BatchShape ShapeOf(const TensorItem& alone, int device);
TensorStats FinishItem(const TensorItem& item, const std::byte* result);

// The tensors of one launch. Immutable, copyable; the caller owns the views' memory.
class TensorBatch {
 public:
  // Plans floating tensors of one device (or, for tests, of the host), of any strides. Returns
  // InvalidArgument with the tensor's number: "tensor 3: expected ...".
  static absl::StatusOr<TensorBatch> Plan(std::span<const TensorView> tensors,
                                          int64_t fits_of_all = kFitsOfAll);

  const std::vector<TensorItem>& items() const { return items_; }
  const BatchShape& shape() const { return shape_; }

  // Writes the items to the begin of a launch's staging memory.
  void Put(std::byte* staging) const;

  // Returns the statistics from the results that the device left: those of MeasureTensor, in every
  // bit, in the order of the tensors.
  std::vector<TensorStats> Finish(const std::byte* results) const;

 private:
  std::vector<TensorItem> items_;
  BatchShape shape_;
};

}  // namespace plumbline
