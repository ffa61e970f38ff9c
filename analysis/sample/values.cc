#include "analysis/sample/values.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "analysis/sample/tensor_reader.h"
#include "base/half.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

// Returns the number of elements of a tensor, before or after CheckTensor.
absl::StatusOr<size_t> Elements(const char* name, const v1::Tensor& tensor) {
  uint64_t n = 1;
  for (const int64_t extent : tensor.shape()) {
    if (extent < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(extent), &n))
      return Cannot(absl::StrCat("bad-tensor: ", name, ": expected extents of a tensor, found ",
                                 ShapeText(tensor)));
  }
  return n;
}

// Reads a column of `count` values. If the tensor is absent, the column is empty.
absl::Status ReadColumn(const char* name, const v1::Tensor& tensor, size_t count, DType* dtype,
                        std::vector<double>* out) {
  auto read = ReadValues(name, tensor);
  if (!read.ok()) return read.status();
  if (!IsFloating(read->dtype)) {
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected a floating dtype, found ",
                               DTypeName(read->dtype)));
  }
  if (read->values.size() != count) {
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected ", count, " values, found ",
                               read->values.size()));
  }
  *dtype = read->dtype;
  *out = std::move(read->values);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> ReadOffsets(bool has, const v1::Tensor& tensor,
                                                  size_t count) {
  std::vector<uint64_t> offsets(count);
  if (!has) {
    for (size_t i = 0; i < count; ++i) offsets[i] = i;
    return offsets;
  }
  const auto status = CheckTensor("offsets", tensor, {static_cast<int64_t>(count)}, false);
  if (!status.ok()) return status;
  for (size_t i = 0; i < count; ++i) {
    const int64_t offset = LoadInt64(tensor.data().data(), static_cast<DType>(tensor.dtype()),
                                     static_cast<int64_t>(i));
    if (offset < 0) return Cannot("bad-tensor: offsets: expected indices of at least 0");
    offsets[i] = static_cast<uint64_t>(offset);
  }
  return offsets;
}

bool PowerOfTwoOrZero(double x) {
  int exponent;
  return x == 0 || std::abs(std::frexp(x, &exponent)) == 0.5;
}

}  // namespace

absl::StatusOr<SampleValues> ReadValues(const char* name, const v1::Tensor& tensor) {
  SampleValues out;
  out.dtype = static_cast<DType>(tensor.dtype());
  const auto elements = Elements(name, tensor);
  if (!elements.ok()) return elements.status();
  out.shape.assign(tensor.shape().begin(), tensor.shape().end());
  const auto status = CheckTensor(name, tensor, out.shape, IsFloating(out.dtype));
  if (!status.ok()) return status;
  out.values.resize(*elements);
  for (size_t i = 0; i < out.values.size(); ++i)
    out.values[i] = LoadDouble(tensor.data().data(), out.dtype, static_cast<int64_t>(i));
  return out;
}

bool UpdateCase::Alike(const UpdateCase& other) const {
  return dtype == other.dtype && moment_dtype == other.moment_dtype &&
         gradient.empty() == other.gradient.empty() &&
         moment_before.empty() == other.moment_before.empty() &&
         moment_after.empty() == other.moment_after.empty();
}

void UpdateCase::Append(const UpdateCase& other) {
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(offsets, other.offsets);
  append(before, other.before);
  append(after, other.after);
  append(intended, other.intended);
  append(gradient, other.gradient);
  append(moment_before, other.moment_before);
  append(moment_after, other.moment_after);
  append(unchanged, other.unchanged);
}

absl::StatusOr<UpdateCase> DecodeUpdate(const v1::Update& update) {
  if (!update.has_sample()) {
    return Cannot(update.no_sample_reason().empty()
                      ? "no-sample: this step holds no sampled elements"
                      : "no-sample: " + update.no_sample_reason());
  }
  const v1::UpdateSample& sample = update.sample();
  const auto before = Elements("before", sample.before());
  if (!before.ok()) return before.status();
  const size_t n = *before;
  UpdateCase c;
  DType after_dtype, any;
  if (auto s = ReadColumn("before", sample.before(), n, &c.dtype, &c.before); !s.ok()) return s;
  if (auto s = ReadColumn("after", sample.after(), n, &after_dtype, &c.after); !s.ok()) return s;
  if (auto s = ReadColumn("intended", sample.intended(), n, &any, &c.intended); !s.ok()) return s;
  if (after_dtype != c.dtype) {
    return Cannot(absl::StrCat("bad-tensor: after: expected the dtype of before, ",
                               DTypeName(c.dtype), ", found ", DTypeName(after_dtype)));
  }
  auto offsets = ReadOffsets(sample.has_offsets(), sample.offsets(), n);
  if (!offsets.ok()) return offsets.status();
  c.offsets = *std::move(offsets);
  if (sample.has_gradient()) {
    if (auto s = ReadColumn("gradient", sample.gradient(), n, &any, &c.gradient); !s.ok()) return s;
  }
  if (sample.has_moment_before()) {
    const auto s =
        ReadColumn("moment_before", sample.moment_before(), n, &c.moment_dtype, &c.moment_before);
    if (!s.ok()) return s;
  }
  if (sample.has_moment_after()) {
    const DType earlier = c.moment_dtype;
    const auto s =
        ReadColumn("moment_after", sample.moment_after(), n, &c.moment_dtype, &c.moment_after);
    if (!s.ok()) return s;
    if (earlier != DType::kUnspecified && earlier != c.moment_dtype)
      return Cannot("bad-tensor: moment_after: expected the dtype of moment_before");
  }
  const size_t size = DTypeSize(c.dtype);
  c.unchanged.resize(n);
  for (size_t i = 0; i < n; ++i) {
    c.unchanged[i] = std::memcmp(sample.before().data().data() + i * size,
                                 sample.after().data().data() + i * size, size) == 0;
  }
  return c;
}

absl::StatusOr<TensorCase> DecodeTensor(const v1::TensorState& state) {
  if (!state.has_sample()) {
    return Cannot(state.no_sample_reason().empty() ? "no-sample: this step holds no sampled values"
                                                   : "no-sample: " + state.no_sample_reason());
  }
  const v1::TensorSample& sample = state.sample();
  auto values = ReadValues("values", sample.values());
  if (!values.ok()) return values.status();
  TensorCase c;
  c.dtype = values->dtype;
  c.first_row = sample.first_row();
  if (sample.has_offsets()) {
    auto offsets = ReadOffsets(true, sample.offsets(), values->values.size());
    if (!offsets.ok()) return offsets.status();
    c.offsets = *std::move(offsets);
  } else {
    c.columns = values->shape.empty() ? 1 : values->shape.back();
    c.rows = c.columns == 0 ? 0 : static_cast<int64_t>(values->values.size()) / c.columns;
  }
  c.values = std::move(values->values);
  return c;
}

bool FitsFormat(const std::vector<double>& values, DType dtype, size_t enough) {
  size_t informative = 0;
  for (const double x : values) {
    if (!std::isfinite(x)) continue;
    if (RoundToFormat(x, dtype) != x) return false;
    if (!PowerOfTwoOrZero(x)) ++informative;
  }
  return informative >= enough;
}

DType CoarsestDType(const std::vector<double>& values, DType dtype, size_t enough) {
  if (dtype != DType::kF32 && dtype != DType::kF64) return dtype;
  for (const DType coarse : {DType::kBF16, DType::kF16}) {
    if (FitsFormat(values, coarse, enough)) return coarse;
  }
  if (dtype == DType::kF64 && FitsFormat(values, DType::kF32, enough)) return DType::kF32;
  return dtype;
}

}  // namespace plumbline::analysis
