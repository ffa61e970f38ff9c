// The totals of a tensor while it is read. Adding two totals is exact and independent of order:
// each thread, or device block, has its own.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "kernels/core/wide_sum.h"
#include "kernels/tensor/digest.h"
#include "kernels/tensor/fit.h"
#include "kernels/tensor/stats.h"

namespace plumbline {

// Exponents floor(log2|x|) of the finite values of a word format: index 0 is the least subnormal's.
template <typename W>
inline constexpr int kLowestExponent = 1 - WordFormat<W>::kBias - WordFormat<W>::kFractionBits;

// Returns the size of the words in which a dtype's values are measured: f64 and bf16 as they are,
// the others as f32.
constexpr size_t WordSize(DType t) { return t == DType::kF64 ? 8 : (t == DType::kBF16 ? 2 : 4); }
constexpr int LowestExponentOf(DType t) {
  return WordSize(t) == 8   ? kLowestExponent<uint64_t>
         : WordSize(t) == 4 ? kLowestExponent<uint32_t>
                            : kLowestExponent<uint16_t>;
}
constexpr size_t ExponentsOf(DType t) {
  if (!IsFloating(t)) return 0;
  return static_cast<size_t>(FormatOf(t == DType::kF64 ? t : DType::kF32).max_exponent -
                             LowestExponentOf(t) + 1);
}

// Counts of a closer look at some of the elements.
struct TensorLook {
  explicit TensorLook(DType t) : exponents(ExponentsOf(t)), fits(kFormatFitTargets) {}

  std::vector<uint64_t> exponents;
  std::array<FormatFitCounts, kFormatFits> fits;

  void Add(const TensorLook& other);
};

struct TensorTotals {
  explicit TensorTotals(DType t) : dtype(t), whole(t), drawn(t) {}

  DType dtype;
  uint64_t count = 0;
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t zero = 0;
  uint64_t subnormal = 0;
  double min = std::numeric_limits<double>::infinity();  // of the finite values
  double max = -std::numeric_limits<double>::infinity();
  WideSum sum;
  WideSum magnitudes;
  WideSum squares;
  int64_t fits_of_all = kFitsOfAll;
  TensorLook whole;  // at the first `fits_of_all` elements: used if there are no more
  TensorLook drawn;  // at those of drawn tiles
  Digest digest;

  const TensorLook& look() const {
    return count <= static_cast<uint64_t>(fits_of_all) ? whole : drawn;
  }

  void Add(const TensorTotals& other);
  TensorStats Finish() const;
};

}  // namespace plumbline
