#include "kernels/tensor/block_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/block_formats.h"
#include "base/load.h"
#include "kernels/core/strided.h"
#include "kernels/tensor/block_fit_core.h"

namespace plumbline {
namespace {

constexpr uint32_t kFewest = 8;  // minimum of values in a block that is called spent or clipped

bool ElementOf(const std::string& name, FloatFormat* format) {
  if (name == "e4m3") *format = FormatOf(DType::kE4M3);
  if (name == "e5m2") *format = FormatOf(DType::kE5M2);
  if (name == "e2m1") *format = kE2M1;
  return name == "e4m3" || name == "e5m2" || name == "e2m1";
}

int64_t Width(const TensorView& t) {
  return t.rank == 0 ? 1 : t.shape[static_cast<size_t>(t.rank - 1)];
}

int64_t Rows(const TensorView& t) { return Width(t) == 0 ? 0 : t.elements() / Width(t); }

int64_t DividedUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Reads a tensor block by block, and judges each.
class BlockReader {
 public:
  BlockReader(const TensorView& tensor, const BlockFormat& format, const FloatFormat& element)
      : reader_(tensor), tensor_(tensor), format_(format), f_(element) {
    bytes_.resize(static_cast<size_t>(std::min(format.columns, Width(tensor))) *
                  DTypeSize(tensor.dtype));
  }

  // Returns the scale of the whole tensor by NVFP4's rule.
  double TensorScale() {
    const BlockGrid grid = GridOf(tensor_, format_);
    double amax = 0;
    for (int64_t i = 0; i < grid.rows; ++i) {
      for (int64_t j = 0; j < grid.columns; ++j) amax = std::max(amax, Read(i, j).amax);
    }
    return amax / f_.max_finite / FormatOf(DType::kE4M3).max_finite;
  }

  // Reads the magnitudes of block (i, j), to which Stored and FlushedAt then refer.
  BlockFacts Read(int64_t i, int64_t j) {
    values_.clear();
    const int64_t width = Width(tensor_), column = j * format_.columns;
    const int64_t n = std::min(format_.columns, width - column);
    const int64_t end = std::min((i + 1) * format_.rows, Rows(tensor_));
    BlockFacts facts;
    for (int64_t row = i * format_.rows; row < end; ++row) {
      const std::byte* at = reader_.Read(row * width + column, n, bytes_.data());
      for (int64_t k = 0; k < n; ++k) {
        values_.push_back(LoadDouble(at, tensor_.dtype, k));
        TakeMagnitude(values_.back(), &facts);
      }
    }
    return facts;
  }

  void TakeAt(double scale, BlockFacts* facts) const {
    for (const double x : values_) TakeStored(x, scale, f_, facts);
  }

  uint32_t CountOf(double magnitude) const {
    return static_cast<uint32_t>(std::count_if(
        values_.begin(), values_.end(), [&](double x) { return std::fabs(x) == magnitude; }));
  }
  uint32_t Finite() const {
    return static_cast<uint32_t>(
        std::count_if(values_.begin(), values_.end(), [](double x) { return std::isfinite(x); }));
  }

 private:
  RunReader reader_;
  TensorView tensor_;
  BlockFormat format_;
  FloatFormat f_;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;
};

// Returns the scale that the format's rule gives to a block with this amax > 0.
double ScaleFor(double amax, const BlockFormat& format, const FloatFormat& f, double tensor_scale) {
  if (format.scale == BlockScale::kPowerOfTwo)
    return PowerOfTwo(std::clamp(std::ilogb(amax) - f.max_exponent, -127, 127));
  if (format.scale == BlockScale::kF32) return amax / f.max_finite;
  const double most = FormatOf(DType::kE4M3).max_finite;
  const double wanted = std::min(amax / f.max_finite / tensor_scale, most);
  const double held = RoundToFormat(wanted, DType::kE4M3);
  // A block far below the tensor's largest gets the least scale of e4m3.
  return (held > 0 ? held : PowerOfTwo(-9)) * tensor_scale;
}

bool IsStale(const BlockFacts& block, double scale, const FloatFormat& f) {
  return block.values > 1 && block.amax / scale < f.max_finite / 4 &&
         4 * block.small >= block.values - 1;
}

void Add(const BlockFacts& block, BlockScaleCounts* fit) {
  ++fit->blocks;
  fit->values += block.values;
  fit->flushed += block.flushed;
  fit->saturated += block.saturated;
  fit->mass += block.mass;
  fit->flushed_mass += block.flushed_mass;
  fit->cut_mass += block.cut_mass;
}

// Returns true if half of the other values become 0 at the scale for the largest value, but not at
// the scale for the second largest.
bool IsSpent(const BlockReader& reader, const BlockFacts& block, double wanted) {
  if (block.values < kFewest || 2 * block.flushed < block.values - 1) return false;
  BlockFacts at;
  reader.TakeAt(wanted, &at);
  return 4 * at.flushed < block.values - 1;
}

void CountStored(const BlockReader& reader, BlockFacts block, const FloatFormat& f,
                 BlockScaleCounts* fit) {
  reader.TakeAt(1, &block);
  block.flushed = block.saturated = 0;  // stored values do not show the conversion
  block.flushed_mass = block.cut_mass = 0;
  Add(block, fit);
  fit->stale += IsStale(block, 1, f);
  const uint32_t size = reader.Finite();
  if (size < kFewest) return;
  const double unit = PowerOfTwo(f.max_exponent - f.precision + 1);
  const uint32_t at_most = reader.CountOf(f.max_finite);
  const bool piled = at_most >= 3 && 4 * at_most >= size;
  fit->clipped += piled && at_most >= 2 * reader.CountOf(f.max_finite - unit);
  fit->spent += block.values == 1;
}

absl::Status Check(const TensorView& tensor, const BlockFormat& format, size_t scales,
                   FloatFormat* element) {
  int64_t count = 0;
  if (absl::Status s = CheckHostTensor(tensor, "tensor", &count); !s.ok()) return s;
  const bool known = ElementOf(format.element, element);
  if (!IsFloating(tensor.dtype) || !known || format.columns < 1 || format.rows < 1)
    return absl::InvalidArgumentError("expected a floating tensor, in blocks of e4m3, e5m2, e2m1");
  const BlockGrid grid = GridOf(tensor, format);
  if (scales == 0 || static_cast<int64_t>(scales) == grid.rows * grid.columns)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", grid.rows, " x ", grid.columns, " scales, found ", scales));
}

}  // namespace

BlockGrid GridOf(const TensorView& tensor, const BlockFormat& format) {
  return {DividedUp(Rows(tensor), format.rows), DividedUp(Width(tensor), format.columns)};
}

absl::Status MeasureBlockFit(const TensorView& tensor, const BlockFormat& format,
                             std::span<const float> scales, double tensor_scale,
                             BlockScaleCounts* fit) {
  *fit = {};
  FloatFormat f{};
  if (absl::Status s = Check(tensor, format, scales.size(), &f); !s.ok()) return s;
  const BlockGrid grid = GridOf(tensor, format);
  if (grid.rows * grid.columns == 0) return absl::OkStatus();
  BlockReader reader(tensor, format, f);
  const bool by_rule = scales.empty() && format.scale == BlockScale::kE4M3 && !format.stored;
  if (!(tensor_scale > 0) && by_rule) tensor_scale = reader.TensorScale();
  if (!(tensor_scale > 0)) tensor_scale = 1;
  for (int64_t i = 0; i < grid.rows; ++i) {
    for (int64_t j = 0; j < grid.columns; ++j) {
      BlockFacts block = reader.Read(i, j);
      if (block.values == 0) continue;
      double scale = ScaleFor(block.amax, format, f, tensor_scale);
      if (!scales.empty())
        scale =
            static_cast<double>(scales[static_cast<size_t>(i * grid.columns + j)]) * tensor_scale;
      if (!(scale > 0) || !std::isfinite(scale)) {
        ++fit->unusable;
      } else if (format.stored) {
        CountStored(reader, block, f, fit);
      } else {
        reader.TakeAt(scale, &block);
        Add(block, fit);
        const bool stale = !scales.empty() && IsStale(block, scale, f);
        fit->stale += stale;
        fit->clipped += block.amax / scale >= 2 * f.max_finite;
        const double second = block.second > 0 ? block.second : block.amax;
        fit->spent += !stale && IsSpent(reader, block, ScaleFor(second, format, f, tensor_scale));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace plumbline
