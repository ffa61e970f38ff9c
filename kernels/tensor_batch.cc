#include "kernels/tensor_batch.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

size_t ResultBytes(DType t) { return sizeof(TensorRaw) + DeviceExponents(t) * sizeof(uint64_t); }

// The value of an order key of TensorRaw.
double ValueOfKey(uint64_t key, DType t) {
  const bool negative = key >> 63 == 0;
  const uint64_t bits = negative ? ~key : key & ~(uint64_t{1} << 63);
  if (t == DType::kF64) return __builtin_bit_cast(double, bits);
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits >> 32));
}

TensorStats FinishOne(const TensorItem& item, const std::byte* result) {
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
  for (size_t i = 0; i < kFormatFits; ++i) {
    const int fit = static_cast<int>(i);
    totals.fits[i].flushed = raw.counts[FitCount(fit, kFitFlushed)];
    totals.fits[i].subnormal = raw.counts[FitCount(fit, kFitSubnormal)];
    totals.fits[i].saturated = raw.counts[FitCount(fit, kFitSaturated)];
  }
  // bf16 has fewer exponents than the f32 words it was measured in, all of them at the upper end.
  const size_t below = DeviceExponents(item.dtype) - totals.exponents.size();
  std::memcpy(totals.exponents.data(), result + sizeof(raw) + below * sizeof(uint64_t),
              totals.exponents.size() * sizeof(uint64_t));
  return totals.Finish();
}

}  // namespace

absl::StatusOr<TensorBatch> TensorBatch::Plan(std::span<const TensorView> tensors) {
  TensorBatch batch;
  batch.items_.reserve(tensors.size());
  for (const TensorView& view : tensors) {
    const std::string name = absl::StrCat("tensor ", batch.items_.size());
    int64_t count = 0;
    if (absl::Status status = CheckTensor(view, name, &count); !status.ok()) return status;
    if (!IsFloating(view.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": expected a floating dtype, found ", DTypeName(view.dtype)));
    }
    if (batch.items_.empty()) batch.device_ = view.device;
    if (view.device != batch.device_) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected device ", batch.device_,
                                                     " as of the first, found ", view.device));
    }
    TensorItem item{};
    item.data = view.data;
    item.count = count;
    item.first_span = batch.spans_;
    item.result = batch.result_bytes_;
    item.axes = AxesOf(view);
    item.dtype = view.dtype;
    item.dense = item.axes.dense();
    item.aligned = reinterpret_cast<uintptr_t>(view.data) % (4 * DTypeSize(view.dtype)) == 0;
    batch.items_.push_back(item);
    batch.spans_ += (count + kSpanElements - 1) / kSpanElements;
    batch.result_bytes_ += ResultBytes(view.dtype);
  }
  return batch;
}

std::vector<TensorStats> TensorBatch::Finish(const std::byte* results) const {
  std::vector<TensorStats> stats;
  stats.reserve(items_.size());
  for (const TensorItem& item : items_) stats.push_back(FinishOne(item, results + item.result));
  return stats;
}

}  // namespace plumbline
