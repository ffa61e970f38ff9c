// Many updates checked by one launch: what the device is told of each, and what comes back.
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
  uint64_t result;  // where its UpdateRaw lies, in bytes from the first
};

// So many are the arguments of one launch (core/batch_launches.h).
inline constexpr int kUpdatesOfLaunch = 5;

// The figures of one update while they are added up; zeros are the start of each.
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

// Of one update: everything but its place in a batch, thus as of a batch of its own. Errors as
// CheckUpdate's. Allocates nothing when the tensors fit.
absl::Status PlanItem(const UpdateViews& update, UpdateItem* item);
BatchShape ShapeOf(const UpdateItem& alone, int device);
UpdateStats FinishItem(const UpdateItem& item, const std::byte* result);

// The updates of one launch. Immutable, copyable; the views' memory is the caller's.
class UpdateBatch {
 public:
  // As CheckUpdate wants them, all on one device (or, for tests, the host). InvalidArgument names
  // the update by its number.
  static absl::StatusOr<UpdateBatch> Plan(std::span<const UpdateViews> updates);

  const std::vector<UpdateItem>& items() const { return items_; }
  const BatchShape& shape() const { return shape_; }

  // Writes the items to the begin of a launch's staging memory.
  void Put(std::byte* staging) const;

  // What CheckUpdate gives, in every bit, in the order of the updates.
  std::vector<UpdateStats> Finish(const std::byte* results) const;

 private:
  std::vector<UpdateItem> items_;
  BatchShape shape_;
};

}  // namespace plumbline
