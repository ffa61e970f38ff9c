// Measures the values of one tensor in one read.
//
// The order of work cannot change a figure: counts are integers, the digest is a sum modulo 2^128,
// and values are summed in fixed point wide enough for any of them (wide_sum.h) and rounded once.
// Values of bf16, f16 and f32 are first summed within tiles of 64 KiB, rounded in a fixed order
// (sum_order.h, with the error bound of a sum). Any number of threads, any launch shape and the
// device give the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/tensor_view.h"
#include "kernels/core/sample_index.h"
#include "kernels/core/status_declared.h"

namespace plumbline {

// Exponents and fits of a larger tensor are those of tiles drawn from it: one of each kFitEach
// neighbouring tiles, the same on every host and device. The choice never changes.
inline constexpr int64_t kFitsOfAll = int64_t{1} << 22;
inline constexpr int64_t kFitTile = 2048;  // elements
inline constexpr int64_t kFitEach = 32;
PLUMB_HD constexpr bool FitTileDrawn(int64_t tile) {
  const uint64_t key =
      internal::Mix64(0x3c6ef372fe94f82bull ^ static_cast<uint64_t>(tile / kFitEach));
  return static_cast<uint64_t>(tile % kFitEach) == key % kFitEach;
}

// The effect of rounding the finite non-zero values once, to nearest even, into `format`.
struct FormatFitCounts {
  DType format = DType::kUnspecified;
  // 0: the values as they are. n: each n consecutive elements in C order (the last block may be
  // shorter) are first multiplied by 2^k, k the largest with amax * 2^k <= the format's largest
  // value; amax is over the block's finite elements, so a scaled block never saturates.
  uint32_t block = 0;
  uint64_t flushed = 0;    // become 0
  uint64_t subnormal = 0;  // become subnormal
  uint64_t saturated = 0;  // values that round beyond the largest finite value
};

inline constexpr int kFormatFits = 8;

// The formats and blocks that are tested for every floating tensor, in this order.
inline constexpr std::array<FormatFitCounts, kFormatFits> kFormatFitTargets = {{
    {DType::kF16, 0},
    {DType::kBF16, 0},
    {DType::kE4M3, 0},
    {DType::kE5M2, 0},
    {DType::kE4M3, 32},
    {DType::kE4M3, 128},
    {DType::kE5M2, 32},
    {DType::kE5M2, 128},
}};

// For floating tensors. Integer and bool tensors have count, zero, min, max, sum and digest; their
// other figures are NaN and there are no exponents and fits. Figures are over the finite values;
// NaN if there are none.
struct TensorStats {
  DType dtype = DType::kUnspecified;
  uint64_t count = 0;
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t zero = 0;       // of either sign
  uint64_t subnormal = 0;  // in the tensor's dtype
  double min = 0;          // a zero is +0; 64-bit integers beyond 2^53 round to nearest
  double max = 0;
  double amax = 0;
  // The double nearest to the sum, exact or of exact tiles' sums, and the one nearest to the
  // remainder: 0.5 ulp each. An overflow is an infinity without a remainder.
  double sum = 0;
  double sum_low = 0;
  double sum_squares = 0;
  double sum_squares_low = 0;
  double l1 = 0;  // in the same form
  // exponents[i]: finite non-zero values with floor(log2|x|) = first_exponent + i, of all elements
  // or, beyond kFitsOfAll, of the drawn ones; their sum is the number of values in the fits. First
  // and last are not 0; empty if there are none.
  int first_exponent = 0;
  std::vector<uint64_t> exponents;
  int fits_count = 0;  // kFormatFits or 0
  std::array<FormatFitCounts, kFormatFits> fits{};
  // Two independent sums modulo 2^64 of a keyed hash of (index, bits) over the 8-byte words of the
  // tensor's dense C-ordered bytes (tensor/digest.h), so strides do not matter. Any change within
  // four aligned bytes (one flipped bit, one f32) changes both sums; unrelated contents agree with
  // probability 2^-64. No protection against an adversary.
  uint64_t digest_low = 0;
  uint64_t digest_high = 0;
};

// Measures host tensors of every dtype, alignment and stride (0 and negative too), rank 0 to 8,
// also empty ones. `threads`: the number of threads, including the caller's; never changes the
// result. Returns InvalidArgument for an unknown dtype, rank or extent out of range, 2^48 elements
// or more, no data, or a tensor that is not on the host. Thread-safe. A dense tensor is read in
// place; no allocation grows with its size. `fits_of_all`: a multiple of kFitTile; values other
// than kFitsOfAll are for tests.
absl::Status MeasureTensor(const TensorView& tensor, TensorStats* stats, int threads = 1,
                           int64_t fits_of_all = kFitsOfAll);

}  // namespace plumbline
