// Checks many updates by one launch: the arguments for each, and the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor_view.h"
#include "kernels/core/batch_shape.h"
#include "kernels/core/status_declared.h"
#include "kernels/core/strided.h"
#include "kernels/core/wide_sum.h"
#include "kernels/update/check.h"
#include "kernels/update/core.h"

namespace plumbline {

// Blocks of kUpdateBlock elements that one block of threads takes at a time.
inline constexpr int64_t kUpdateSpanBlocks = 16;

struct UpdateOperand {
  const void* data;
  StridedAxes axes;
  bool dense;
};

struct UpdateItem {
  UpdateOperand before;
  UpdateOperand after;
  UpdateOperand intended;
  DType dtype;
  DType intended_dtype;
  UpdateRounding rounding;
  int64_t count;
  int64_t first_span;
  uint64_t result;  // place of its UpdateRaw, in bytes from the first
};

// The number of updates in the arguments of one launch (core/batch_launches.h).
inline constexpr int kUpdatesOfLaunch = 5;

// The figures of one update while they are summed; all start as zeros.
struct UpdateRaw {
  uint64_t counts[kUpdateCounts];
  double beyond[kUpdateSums];  // see UpdateTotals
  WideDigits wides[kUpdateSums];
};

struct UpdateViews {
  TensorView before;
  TensorView after;
  TensorView intended;
};

// Plans one update: everything except its place in a batch, as if it were the only update of a
// batch. Errors as CheckUpdate's. Allocates nothing if the tensors fit.
absl::Status PlanItem(const UpdateViews& update, UpdateItem* item);
BatchShape ShapeOf(const UpdateItem& alone, int device);
UpdateStats FinishItem(const UpdateItem& item, const std::byte* result);

// The updates of one launch. Immutable, copyable; the caller owns the views' memory.
class UpdateBatch {
 public:
  // Plans updates with the requirements of CheckUpdate, all on one device (or, for tests, the
  // host). Returns InvalidArgument with the update's number.
  static absl::StatusOr<UpdateBatch> Plan(std::span<const UpdateViews> updates);

  const std::vector<UpdateItem>& items() const { return items_; }
  const BatchShape& shape() const { return shape_; }

  // Writes the items to the begin of a launch's staging memory.
  void Put(std::byte* staging) const;

  // Returns the results of CheckUpdate, in every bit, in the order of the updates.
  std::vector<UpdateStats> Finish(const std::byte* results) const;

 private:
  std::vector<UpdateItem> items_;
  BatchShape shape_;
};

}  // namespace plumbline
