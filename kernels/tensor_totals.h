// What is added up while a tensor is read. Adding two totals is exact and free of order: each
// thread, or device block, has its own.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "kernels/tensor_digest.h"
#include "kernels/tensor_fit.h"
#include "kernels/tensor_stats.h"
#include "kernels/wide_sum.h"

namespace plumbline {

// Exponents floor(log2|x|) of the finite values of a word format: index 0 is the least subnormal's.
template <typename W>
inline constexpr int kLowestExponent = 1 - WordFormat<W>::kBias - WordFormat<W>::kFractionBits;
template <typename W>
inline constexpr int kExponents = WordFormat<W>::kBias - kLowestExponent<W> + 1;

// In which words values of a dtype are measured: f64 as they are, the narrower ones as f32.
constexpr bool UsesWideWords(DType t) { return t == DType::kF64; }

struct TensorTotals {
  explicit TensorTotals(DType t)
      : dtype(t),
        exponents(static_cast<size_t>(
            !IsFloating(t) ? 0 : (UsesWideWords(t) ? kExponents<uint64_t> : kExponents<uint32_t>))),
        fits(kFormatFitTargets) {}

  DType dtype;
  uint64_t count = 0;
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t zero = 0;
  uint64_t subnormal = 0;
  double min = std::numeric_limits<double>::infinity();  // of the finite values
  double max = -std::numeric_limits<double>::infinity();
  WideSum positive;  // sum of the positive values, and of the magnitudes of the negative ones
  WideSum negative;
  WideSum squares;
  std::vector<uint64_t> exponents;
  std::array<FormatFitCounts, kFormatFits> fits;
  Digest digest;

  void Add(const TensorTotals& other);
  TensorStats Finish() const;
};

}  // namespace plumbline
