#include "kernels/update_batch.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/update_totals.h"

namespace plumbline {
namespace {

UpdateOperand OperandOf(const TensorView& view) {
  const StridedAxes axes = AxesOf(view);
  return {view.data, axes, axes.dense()};
}

}  // namespace

absl::StatusOr<UpdateBatch> UpdateBatch::Plan(std::span<const UpdateTensors> updates) {
  constexpr int64_t kSpan = kUpdateSpanBlocks * kUpdateBlock;
  UpdateBatch batch;
  batch.items_.reserve(updates.size());
  for (const UpdateTensors& update : updates) {
    const size_t number = batch.items_.size();
    int64_t count = 0;
    absl::Status status = CheckUpdateTensors(update.before, update.after, update.intended, &count);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("update ", number, ": ", status.message()));
    }
    if (number == 0) batch.device_ = update.before.device;
    if (update.before.device != batch.device_) {
      return absl::InvalidArgumentError(absl::StrCat("update ", number, ": expected device ",
                                                     batch.device_, " as of the first, found ",
                                                     update.before.device));
    }
    batch.items_.push_back({OperandOf(update.before), OperandOf(update.after),
                            OperandOf(update.intended), update.before.dtype, update.intended.dtype,
                            RoundingOf(update.before.dtype), count, batch.spans_,
                            number * sizeof(UpdateRaw)});
    batch.spans_ += (count + kSpan - 1) / kSpan;
  }
  return batch;
}

std::vector<UpdateStats> UpdateBatch::Finish(const std::byte* results) const {
  std::vector<UpdateStats> stats;
  stats.reserve(items_.size());
  for (const UpdateItem& item : items_) {
    UpdateRaw raw;
    std::memcpy(&raw, results + item.result, sizeof(raw));
    UpdateTotals totals;
    for (size_t i = 0; i < kUpdateSums; ++i) {
      totals.sums[i].Add(raw.wides[i]);
      totals.beyond[i] = raw.beyond[i];
    }
    for (size_t i = 0; i < kUpdateCounts; ++i) totals.counts[i] = raw.counts[i];
    stats.push_back(totals.Finish(static_cast<uint64_t>(item.count)));
  }
  return stats;
}

}  // namespace plumbline
