#include "kernels/update/batch.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/update/totals.h"

namespace plumbline {
namespace {

UpdateOperand OperandOf(const TensorView& view) {
  const StridedAxes axes = AxesOf(view);
  return {view.data, axes, axes.dense()};
}

int64_t SpansOf(const UpdateItem& item) {
  constexpr int64_t kSpan = kUpdateSpanBlocks * kUpdateBlock;
  return (item.count + kSpan - 1) / kSpan;
}

}  // namespace

absl::Status PlanItem(const UpdateViews& update, UpdateItem* item) {
  int64_t count = 0;
  absl::Status status = CheckUpdateTensors(update.before, update.after, update.intended, &count);
  if (!status.ok()) return status;
  const DType t = update.before.dtype;
  *item = {OperandOf(update.before),
           OperandOf(update.after),
           OperandOf(update.intended),
           t,
           update.intended.dtype,
           RoundingOf(t),
           count,
           0,
           0};
  return status;
}

BatchShape ShapeOf(const UpdateItem& alone, int device) {
  return {device, 1, SpansOf(alone), sizeof(UpdateItem), sizeof(UpdateRaw)};
}

UpdateStats FinishItem(const UpdateItem& item, const std::byte* result) {
  UpdateRaw raw;
  std::memcpy(&raw, result, sizeof(raw));
  UpdateTotals totals;
  for (size_t i = 0; i < kUpdateSums; ++i) {
    totals.sums[i].Add(raw.wides[i]);
    totals.beyond[i] = raw.beyond[i];
  }
  for (size_t i = 0; i < kUpdateCounts; ++i) totals.counts[i] = raw.counts[i];
  return totals.Finish(static_cast<uint64_t>(item.count));
}

absl::StatusOr<UpdateBatch> UpdateBatch::Plan(std::span<const UpdateViews> updates) {
  UpdateBatch batch;
  BatchShape& shape = batch.shape_;
  batch.items_.reserve(updates.size());
  for (const UpdateViews& update : updates) {
    const size_t number = batch.items_.size();
    UpdateItem item;
    if (absl::Status status = PlanItem(update, &item); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("update ", number, ": ", status.message()));
    }
    if (number == 0) shape.device = update.before.device;
    if (update.before.device != shape.device) {
      return absl::InvalidArgumentError(absl::StrCat("update ", number, ": expected device ",
                                                     shape.device, " as of the first, found ",
                                                     update.before.device));
    }
    item.first_span = shape.work;
    item.result = number * sizeof(UpdateRaw);
    batch.items_.push_back(item);
    shape.work += SpansOf(item);
  }
  shape.items = static_cast<int32_t>(batch.items_.size());
  shape.item_bytes = batch.items_.size() * sizeof(UpdateItem);
  shape.result_bytes = batch.items_.size() * sizeof(UpdateRaw);
  return batch;
}

void UpdateBatch::Put(std::byte* staging) const {
  if (!items_.empty()) std::memcpy(staging, items_.data(), shape_.item_bytes);
}

std::vector<UpdateStats> UpdateBatch::Finish(const std::byte* results) const {
  std::vector<UpdateStats> stats;
  stats.reserve(items_.size());
  for (const UpdateItem& item : items_) stats.push_back(FinishItem(item, results + item.result));
  return stats;
}

}  // namespace plumbline
