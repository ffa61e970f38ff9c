#include "kernels/tensor/batch.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plumbline {
namespace {

size_t ResultBytes(DType t) { return sizeof(TensorRaw) + DeviceExponents(t) * sizeof(uint64_t); }

int64_t SpansOf(const TensorItem& item) {
  const int64_t elements = SpanElements(item.dtype);
  return (item.count + elements - 1) / elements;
}

// Returns the value of an order key of TensorRaw.
double ValueOfKey(uint64_t key, DType t) {
  const bool negative = key >> 63 == 0;
  const uint64_t bits = negative ? ~key : key & ~(uint64_t{1} << 63);
  if (t == DType::kF64) return __builtin_bit_cast(double, bits);
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits >> 32));
}

}  // namespace

absl::Status PlanItem(const TensorView& tensor, std::string_view name, TensorItem* item,
                      int64_t fits_of_all) {
  int64_t count = 0;
  if (absl::Status status = CheckTensor(tensor, name, &count); !status.ok()) return status;
  if (!IsFloating(tensor.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(name.data(), name.size()),
                                                   ": expected a floating dtype, found ",
                                                   DTypeName(tensor.dtype)));
  }
  *item = TensorItem{};
  item->data = tensor.data;
  item->count = count;
  item->axes = AxesOf(tensor);
  item->dtype = tensor.dtype;
  item->whole = count <= fits_of_all;
  item->dense = item->axes.dense();
  item->aligned = reinterpret_cast<uintptr_t>(tensor.data) % (4 * DTypeSize(tensor.dtype)) == 0;
  return absl::OkStatus();
}

BatchShape ShapeOf(const TensorItem& alone, int device) {
  return {device, 1, SpansOf(alone), sizeof(TensorItem), ResultBytes(alone.dtype)};
}

TensorStats FinishItem(const TensorItem& item, const std::byte* result) {
  TensorRaw raw;
  std::memcpy(&raw, result, sizeof(raw));
  TensorTotals totals(item.dtype);
  totals.count = static_cast<uint64_t>(item.count);
  totals.nan = raw.counts[kCountNan];
  totals.pos_inf = raw.counts[kCountPositiveInf];
  totals.neg_inf = raw.counts[kCountNegativeInf];
  totals.zero = raw.counts[kCountZero];
  totals.subnormal = raw.counts[kCountSubnormal];
  totals.digest = raw.digest;
  if (raw.highest != 0) totals.max = ValueOfKey(raw.highest, item.dtype);
  if (raw.lowest_flipped != 0) totals.min = ValueOfKey(~raw.lowest_flipped, item.dtype);
  totals.sum.Add(raw.wides[kWideSum]);
  totals.magnitudes.Add(raw.wides[kWideMagnitudes]);
  totals.squares.Add(raw.wides[kWideSquares]);
  totals.fits_of_all = item.count;
  TensorLook& look = totals.whole;
  for (size_t i = 0; i < kFormatFits; ++i) {
    const int fit = static_cast<int>(i);
    look.fits[i].flushed = raw.counts[FitCount(fit, kFitFlushed)];
    look.fits[i].subnormal = raw.counts[FitCount(fit, kFitSubnormal)];
    look.fits[i].saturated = raw.counts[FitCount(fit, kFitSaturated)];
  }
  // bf16 is measured in f32 words and has fewer exponents than these: the upper ones.
  const size_t below = DeviceExponents(item.dtype) - look.exponents.size();
  std::memcpy(look.exponents.data(), result + sizeof(raw) + below * sizeof(uint64_t),
              look.exponents.size() * sizeof(uint64_t));
  return totals.Finish();
}

absl::StatusOr<TensorBatch> TensorBatch::Plan(std::span<const TensorView> tensors,
                                              int64_t fits_of_all) {
  TensorBatch batch;
  BatchShape& shape = batch.shape_;
  batch.items_.reserve(tensors.size());
  for (const TensorView& view : tensors) {
    const std::string name = absl::StrCat("tensor ", batch.items_.size());
    TensorItem item;
    if (absl::Status status = PlanItem(view, name, &item, fits_of_all); !status.ok()) return status;
    if (batch.items_.empty()) shape.device = view.device;
    if (view.device != shape.device) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected device ", shape.device,
                                                     " as of the first, found ", view.device));
    }
    item.first_span = shape.work;
    item.result = shape.result_bytes;
    batch.items_.push_back(item);
    shape.work += SpansOf(item);
    shape.result_bytes += ResultBytes(view.dtype);
  }
  shape.items = static_cast<int32_t>(batch.items_.size());
  shape.item_bytes = batch.items_.size() * sizeof(TensorItem);
  return batch;
}

void TensorBatch::Put(std::byte* staging) const {
  if (!items_.empty()) std::memcpy(staging, items_.data(), shape_.item_bytes);
}

std::vector<TensorStats> TensorBatch::Finish(const std::byte* results) const {
  std::vector<TensorStats> stats;
  stats.reserve(items_.size());
  for (const TensorItem& item : items_) stats.push_back(FinishItem(item, results + item.result));
  return stats;
}

}  // namespace plumbline
