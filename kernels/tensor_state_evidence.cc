#include "kernels/tensor_state_evidence.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/sample_evidence.h"
#include "kernels/sampled_gather.h"
#include "kernels/strided.h"

namespace plumbline {
namespace {

// `rows` rows of `width` elements from `first` on, dense.
void PackRows(const TensorView& tensor, int64_t first, int64_t rows, int64_t width,
              v1::TensorSample* out) {
  v1::Tensor* values = out->mutable_values();
  values->set_dtype(static_cast<v1::DType>(tensor.dtype));
  values->add_shape(rows);
  values->add_shape(width);
  std::string* data = values->mutable_data();
  data->resize(static_cast<size_t>(rows * width) * DTypeSize(tensor.dtype));
  auto* bytes = reinterpret_cast<std::byte*>(data->data());
  const std::byte* from = RunReader(tensor).Read(first * width, rows * width, bytes);
  if (from != bytes && !data->empty()) std::memcpy(bytes, from, data->size());
  out->set_first_row(static_cast<uint64_t>(first));
}

void SampleRows(const TensorView& tensor, int64_t count, const TensorStateOptions& options,
                v1::TensorState* out) {
  const int64_t width = tensor.rank == 0 ? 1 : tensor.shape[static_cast<size_t>(tensor.rank - 1)];
  if (count == 0 || width == 0) return PackRows(tensor, 0, 0, width, out->mutable_sample());
  const auto row_bytes = static_cast<uint64_t>(width) * DTypeSize(tensor.dtype);
  if (row_bytes > options.max_bytes) {
    out->set_no_sample_reason(absl::StrCat("a row of ", row_bytes, " bytes exceeds the limit of ",
                                           options.max_bytes, " bytes"));
    return;
  }
  const int64_t all = count / width;
  const auto fitting = static_cast<int64_t>(options.max_bytes / row_bytes);
  const int64_t rows = std::min({all, fitting, std::max<int64_t>(options.max_samples / width, 1)});
  const uint64_t first = SampleIndex(options.key, static_cast<uint64_t>(all - rows + 1), 0);
  PackRows(tensor, static_cast<int64_t>(first), rows, width, out->mutable_sample());
}

bool WantsRows(const std::string& role) { return role == "probabilities" || role == "positions"; }

}  // namespace

void FillTensorSummary(const TensorStats& stats, v1::TensorSummary* out) {
  out->Clear();
  out->set_count(stats.count);
  out->set_nan(stats.nan);
  out->set_pos_inf(stats.pos_inf);
  out->set_neg_inf(stats.neg_inf);
  out->set_zero(stats.zero);
  out->set_subnormal(stats.subnormal);
  out->set_min(stats.min);
  out->set_max(stats.max);
  out->set_amax(stats.amax);
  out->set_sum(stats.sum);
  out->set_sum_low(stats.sum_low);
  out->set_sum_squares(stats.sum_squares);
  out->set_sum_squares_low(stats.sum_squares_low);
  out->set_l1(stats.l1);
  out->set_first_exponent(stats.first_exponent);
  out->mutable_exponents()->Add(stats.exponents.begin(), stats.exponents.end());
  for (int i = 0; i < stats.fits_count; ++i) {
    const FormatFitCounts& from = stats.fits[static_cast<size_t>(i)];
    v1::FormatFit* fit = out->add_fits();
    fit->set_format(static_cast<v1::DType>(from.format));
    fit->set_block(from.block);
    fit->set_flushed(from.flushed);
    fit->set_subnormal(from.subnormal);
    fit->set_saturated(from.saturated);
  }
  out->set_digest_low(stats.digest_low);
  out->set_digest_high(stats.digest_high);
}

TensorStats StatsOf(const v1::TensorSummary& summary, DType dtype) {
  TensorStats stats;
  stats.dtype = dtype;
  stats.count = summary.count();
  stats.nan = summary.nan();
  stats.pos_inf = summary.pos_inf();
  stats.neg_inf = summary.neg_inf();
  stats.zero = summary.zero();
  stats.subnormal = summary.subnormal();
  stats.min = summary.min();
  stats.max = summary.max();
  stats.amax = summary.amax();
  stats.sum = summary.sum();
  stats.sum_low = summary.sum_low();
  stats.sum_squares = summary.sum_squares();
  stats.sum_squares_low = summary.sum_squares_low();
  stats.l1 = summary.l1();
  stats.first_exponent = summary.first_exponent();
  stats.exponents.assign(summary.exponents().begin(), summary.exponents().end());
  for (const v1::FormatFit& fit : summary.fits()) {
    if (stats.fits_count == kFormatFits) break;
    stats.fits[static_cast<size_t>(stats.fits_count++)] = {static_cast<DType>(fit.format()),
                                                           fit.block(), fit.flushed(),
                                                           fit.subnormal(), fit.saturated()};
  }
  stats.digest_low = summary.digest_low();
  stats.digest_high = summary.digest_high();
  return stats;
}

absl::Status FillTensorSample(const TensorView& tensor, const TensorStateOptions& options,
                              v1::TensorState* out) {
  out->clear_sample();
  out->clear_no_sample_reason();
  int64_t count = 0;
  if (absl::Status status = CheckHostTensor(tensor, "tensor", &count); !status.ok()) return status;
  if (WantsRows(options.role)) {
    SampleRows(tensor, count, options, out);
    return absl::OkStatus();
  }
  const auto most = static_cast<uint32_t>(
      std::min<uint64_t>(options.max_samples, options.max_bytes / DTypeSize(tensor.dtype)));
  const std::vector<uint64_t> indices =
      SampleIndices(options.key, static_cast<uint64_t>(count), most);
  PackIndices(indices, out->mutable_sample()->mutable_offsets());
  return PackSamples(tensor, indices, out->mutable_sample()->mutable_values());
}

absl::Status FillTensorState(const TensorView& tensor, const TensorStateOptions& options,
                             v1::TensorState* out) {
  out->Clear();
  TensorStats stats;
  if (absl::Status status = MeasureTensor(tensor, &stats, options.threads); !status.ok()) {
    return status;
  }
  out->set_dtype(static_cast<v1::DType>(tensor.dtype));
  out->set_role(options.role);
  out->set_target_format(static_cast<v1::DType>(options.target_format));
  out->set_replicas(options.replicas);
  for (int i = 0; i < tensor.rank; ++i) out->add_shape(tensor.shape[static_cast<size_t>(i)]);
  FillTensorSummary(stats, out->mutable_summary());
  return options.with_sample ? FillTensorSample(tensor, options, out) : absl::OkStatus();
}

}  // namespace plumbline
