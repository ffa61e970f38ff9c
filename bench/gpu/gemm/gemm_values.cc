#include "bench/gpu/gemm/gemm_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace plumbline::bench {
namespace {

constexpr size_t kBlock = 64;

template <typename T, typename Convert>
void EncodeAs(absl::Span<const double> values, std::byte* out, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T code = convert(values[i]);
    std::memcpy(out + i * sizeof(T), &code, sizeof(T));
  }
}

template <typename T>
T Loaded(const std::byte* element) {
  T code;
  std::memcpy(&code, element, sizeof(T));
  return code;
}

}  // namespace

void Encode(DType dtype, absl::Span<const double> values, std::byte* out) {
  const auto as_float = [](double x) { return static_cast<float>(x); };
  switch (dtype) {
    case DType::kF64:
      return EncodeAs<double>(values, out, [](double x) { return x; });
    case DType::kF32:
      return EncodeAs<float>(values, out, as_float);
    case DType::kF16:
      return EncodeAs<uint16_t>(values, out, [=](double x) { return FloatToF16(as_float(x)); });
    case DType::kBF16:
      return EncodeAs<uint16_t>(values, out, [=](double x) { return FloatToBF16(as_float(x)); });
    case DType::kE4M3:
      return EncodeAs<uint8_t>(values, out, [=](double x) { return FloatToE4M3(as_float(x)); });
    case DType::kE5M2:
      return EncodeAs<uint8_t>(values, out, [=](double x) { return FloatToE5M2(as_float(x)); });
    default:
      return;
  }
}

double Decode(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::kF64:
      return Loaded<double>(element);
    case DType::kF32:
      return Loaded<float>(element);
    case DType::kF16:
      return F16ToFloat(Loaded<uint16_t>(element));
    case DType::kBF16:
      return BF16ToFloat(Loaded<uint16_t>(element));
    case DType::kE4M3:
      return E4M3ToFloat(Loaded<uint8_t>(element));
    case DType::kE5M2:
      return E5M2ToFloat(Loaded<uint8_t>(element));
    default:
      return std::nan("");
  }
}

RowAndColumn::RowAndColumn(DType dtype, int n, std::byte* out)
    : dtype_(dtype), out_(out), held_(2 * static_cast<size_t>(n)) {
  Encode(dtype_, held_, out_);
}

void RowAndColumn::Set(absl::Span<const double> row, absl::Span<const double> column) {
  Update(row, 0);
  Update(column, held_.size() / 2);
}

// Compares bits: a zero that changes its sign is a change.
void RowAndColumn::Update(absl::Span<const double> values, size_t begin) {
  const size_t width = DTypeSize(dtype_);
  for (size_t i = 0; i < values.size(); i += kBlock) {
    const auto block = values.subspan(i, std::min(kBlock, values.size() - i));
    double* const held = &held_[begin + i];
    if (std::memcmp(held, block.data(), block.size() * sizeof(double)) == 0) continue;
    std::memcpy(held, block.data(), block.size() * sizeof(double));
    Encode(dtype_, block, out_ + (begin + i) * width);
  }
}

}  // namespace plumbline::bench
