#include "kernels/evidence/tensor_state.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/strided.h"
#include "kernels/evidence/sample.h"
#include "kernels/sample/gather.h"

namespace plumbline {
namespace {

// Fills the message of a planned sample. Returns the memory for its elements, or null if none are
// kept.
std::byte* PackSample(const TensorSample& sample, DType dtype, v1::TensorState* out) {
  out->clear_sample();
  out->clear_no_sample_reason();
  if (sample.row_bytes > 0) {
    out->set_no_sample_reason(absl::StrCat("a row of ", sample.row_bytes,
                                           " bytes exceeds the limit of ", sample.limit, " bytes"));
    return nullptr;
  }
  v1::Tensor* values = out->mutable_sample()->mutable_values();
  values->set_dtype(static_cast<v1::DType>(dtype));
  if (sample.whole_rows) {
    values->add_shape(sample.rows);
    values->add_shape(sample.width);
    out->mutable_sample()->set_first_row(static_cast<uint64_t>(sample.first));
  } else {
    std::vector<uint64_t> indices(sample.drawn);
    sample.Indices(indices.data());
    values->add_shape(static_cast<int64_t>(sample.drawn));
    PackIndices(indices, out->mutable_sample()->mutable_offsets());
  }
  std::string* data = values->mutable_data();
  data->resize(static_cast<size_t>(sample.elements()) * DTypeSize(dtype));
  return reinterpret_cast<std::byte*>(data->data());
}

// Copies the rows of a host tensor, dense.
void CopyRows(const TensorView& tensor, const TensorSample& sample, std::byte* to) {
  const int64_t n = sample.elements();
  if (n == 0) return;
  const std::byte* from = RunReader(tensor).Read(sample.first * sample.width, n, to);
  if (from != to) std::memcpy(to, from, static_cast<size_t>(n) * DTypeSize(tensor.dtype));
}

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
  int64_t count = 0;
  if (absl::Status status = CheckHostTensor(tensor, "tensor", &count); !status.ok()) return status;
  const TensorSample sample = ChooseSample(tensor, count, KeepsRows(options.role), options.key,
                                           options.max_samples, options.max_bytes);
  std::byte* to = PackSample(sample, tensor.dtype, out);
  if (to == nullptr) return absl::OkStatus();
  if (sample.whole_rows) {
    CopyRows(tensor, sample, to);
    return absl::OkStatus();
  }
  std::vector<uint64_t> indices(sample.drawn);
  sample.Indices(indices.data());
  return GatherSamples(tensor, indices, to);
}

void FillTensorSample(const TensorSample& sample, DType dtype, const std::byte* elements,
                      v1::TensorState* out) {
  std::byte* to = PackSample(sample, dtype, out);
  const size_t bytes = static_cast<size_t>(sample.elements()) * DTypeSize(dtype);
  if (to != nullptr && bytes != 0) std::memcpy(to, elements, bytes);
}

void FillTensorFigures(const TensorView& tensor, const TensorStats& stats,
                       const TensorStateOptions& options, v1::TensorState* out) {
  out->Clear();
  out->set_dtype(static_cast<v1::DType>(tensor.dtype));
  out->set_role(options.role);
  out->set_target_format(static_cast<v1::DType>(options.target_format));
  out->set_replicas(options.replicas);
  for (int i = 0; i < tensor.rank; ++i) out->add_shape(tensor.shape[static_cast<size_t>(i)]);
  FillTensorSummary(stats, out->mutable_summary());
}

absl::Status FillTensorState(const TensorView& tensor, const TensorStateOptions& options,
                             v1::TensorState* out) {
  out->Clear();
  TensorStats stats;
  if (absl::Status status = MeasureTensor(tensor, &stats, options.threads); !status.ok()) {
    return status;
  }
  FillTensorFigures(tensor, stats, options, out);
  return options.with_sample ? FillTensorSample(tensor, options, out) : absl::OkStatus();
}

}  // namespace plumbline
