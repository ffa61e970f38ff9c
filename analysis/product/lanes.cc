#include "analysis/product/lanes.h"

#include <algorithm>
#include <bit>

#include "base/avx2.h"
#include "base/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plumbline::analysis {

bool FitsLanes(const MatmulModel& m) {
  const bool known =
      m.rounding == RoundingMode::kNearestEven || m.rounding == RoundingMode::kTowardZero;
  return m.sum == MatmulModel::Sum::kAligned && m.accumulator == DType::kF32 && !m.floored &&
         known && BlockIndex(m.block) >= 0;
}

#if defined(__x86_64__)
namespace {

constexpr int kWidth = 4;  // doubles per vector
constexpr int kVectors = kAlignedLanes / kWidth;
constexpr int64_t kBias = 1023;

PLUMB_AVX2_INLINE __m256i Bits(__m256d x) { return _mm256_castpd_si256(x); }
PLUMB_AVX2_INLINE __m256d Doubles(__m256i x) { return _mm256_castsi256_pd(x); }
PLUMB_AVX2_INLINE __m256d Constant(int64_t bits) { return Doubles(_mm256_set1_epi64x(bits)); }
PLUMB_AVX2_INLINE __m256d Truncated(__m256d x) {
  return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

// Rounds doubles of f32's normal range to its 24 bits.
template <bool kNearest>
PLUMB_AVX2_INLINE __m256d Rounded(__m256d x) {
  if (kNearest) return _mm256_cvtps_pd(_mm256_cvtpd_ps(x));
  return _mm256_and_pd(x, Constant(~int64_t{(1 << 29) - 1}));
}

// Returns a + b of f32 values, rounded once. If rounding to nearest, a second rounding from 53 to
// 24 bits is harmless. For truncation, a sum that the first rounding moved up to its neighbour is
// first moved back.
template <bool kNearest>
PLUMB_AVX2_INLINE __m256d Added(__m256d a, __m256d b) {
  const __m256d sum = _mm256_add_pd(a, b);
  if (kNearest) return Rounded<true>(sum);
  const __m256d from_b = _mm256_sub_pd(sum, a);
  const __m256d lost =
      _mm256_add_pd(_mm256_sub_pd(a, _mm256_sub_pd(sum, from_b)), _mm256_sub_pd(b, from_b));
  const __m256d inexact = _mm256_cmp_pd(lost, _mm256_setzero_pd(), _CMP_NEQ_OQ);
  const __m256d opposite = _mm256_xor_pd(lost, sum);  // in the sign bit
  const __m256i back = _mm256_srli_epi64(Bits(_mm256_and_pd(inexact, opposite)), 63);
  return Rounded<false>(Doubles(_mm256_sub_epi64(Bits(sum), back)));
}

// Returns all ones where x is neither 0 nor well inside f32's normal range.
PLUMB_AVX2_INLINE __m256d Outside(__m256d x) {
  const __m256d magnitude = _mm256_and_pd(x, Constant(INT64_MAX));
  const __m256d low = _mm256_cmp_pd(magnitude, Constant((kBias - 125) << 52), _CMP_LT_OQ);
  const __m256d high = _mm256_cmp_pd(magnitude, Constant((kBias + 127) << 52), _CMP_NLT_UQ);
  const __m256d zero = _mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_EQ_OQ);
  return _mm256_or_pd(high, _mm256_andnot_pd(zero, low));
}

// The accumulators of all lanes, and how their fraction bits change a block's exponent: terms are
// scaled by 2^(F-e), sums back by 2^(e-F).
struct Lanes {
  __m256d acc[kVectors];
  __m256i up[kVectors];    // (2 * bias + F) << 52, minus the bits of 2^e
  __m256i down[kVectors];  // F << 52, subtracted from the bits of 2^e
  __m256d outside;
  __m256d kept;  // all ones, except for the significand bits that the accumulator drops
};

// Adds the products [at, end), one block.
template <bool kInside, bool kNearest>
PLUMB_AVX2_INLINE void TakeBlock(const double* p, int n, int32_t exponent, Lanes* lanes) {
  // For a block of zeros: far below any product's exponent.
  constexpr int64_t kTiny = 64;
  const int64_t biased = exponent == kNoExponent ? kTiny : exponent + kBias;
  __m256d scale[kVectors], sum[kVectors];
  __m256i largest[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    __m256d e = Constant(biased << 52);  // 2^e
    if (kInside) e = _mm256_max_pd(e, _mm256_and_pd(lanes->acc[v], Constant(0x7ffLL << 52)));
    largest[v] = Bits(e);
    scale[v] = Doubles(_mm256_sub_epi64(lanes->up[v], largest[v]));
    sum[v] = kInside ? Truncated(_mm256_mul_pd(lanes->acc[v], scale[v])) : _mm256_setzero_pd();
  }
  for (int k = 0; k < n; ++k) {
    const __m256d x = _mm256_broadcast_sd(p + k);
    for (int v = 0; v < kVectors; ++v)
      sum[v] = _mm256_add_pd(sum[v], Truncated(_mm256_mul_pd(x, scale[v])));
  }
  for (int v = 0; v < kVectors; ++v) {
    const __m256d unit = Doubles(_mm256_sub_epi64(largest[v], lanes->down[v]));
    const __m256d exact = _mm256_mul_pd(sum[v], unit);
    const __m256d block = Rounded<kNearest>(exact);
    const __m256d acc = kInside ? block : Added<kNearest>(lanes->acc[v], block);
    lanes->acc[v] = _mm256_and_pd(acc, lanes->kept);
    lanes->outside =
        _mm256_or_pd(lanes->outside, _mm256_or_pd(Outside(exact), Outside(lanes->acc[v])));
  }
}

template <bool kInside, bool kNearest>
PLUMB_AVX2 bool Run(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start,
                    std::span<const int> fraction_bits, double* sums) {
  Lanes lanes;
  lanes.outside = Outside(_mm256_set1_pd(start));
  lanes.kept = Constant(m.kept > 0 ? ~((int64_t{1} << (53 - m.kept)) - 1) : ~int64_t{0});
  for (int v = 0; v < kVectors; ++v) {
    alignas(32) int64_t bits[kWidth];
    for (int i = 0; i < kWidth; ++i) {
      const auto at = static_cast<size_t>(v * kWidth + i);
      bits[i] = int64_t{fraction_bits[std::min(at, fraction_bits.size() - 1)]} << 52;
    }
    lanes.down[v] = _mm256_load_si256(reinterpret_cast<const __m256i*>(bits));
    lanes.up[v] = _mm256_add_epi64(lanes.down[v], _mm256_set1_epi64x(2 * kBias << 52));
    lanes.acc[v] = _mm256_set1_pd(start);
  }
  for (int at = first; at < last; at += std::min(m.block, last - at)) {
    const int end = at + std::min(m.block, last - at);
    TakeBlock<kInside, kNearest>(&t.product[static_cast<size_t>(at)], end - at,
                                 t.BlockExponent(m.block, at, end), &lanes);
  }
  alignas(32) double all[kAlignedLanes];
  for (int v = 0; v < kVectors; ++v) _mm256_store_pd(all + v * kWidth, lanes.acc[v]);
  std::copy_n(all, fraction_bits.size(), sums);
  return _mm256_movemask_pd(lanes.outside) == 0;
}

}  // namespace

bool AlignedRun(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start,
                std::span<const int> fraction_bits, double* sums) {
  static const bool vectors = HasAvx2();
  if (!vectors || start != static_cast<double>(static_cast<float>(start))) return false;
  const bool nearest = m.rounding == RoundingMode::kNearestEven;
  const auto run = m.addend_inside ? (nearest ? Run<true, true> : Run<true, false>)
                                   : (nearest ? Run<false, true> : Run<false, false>);
  return run(m, t, first, last, start, fraction_bits, sums);
}

#else

bool AlignedRun(const MatmulModel&, const MatmulTerms&, int, int, double, std::span<const int>,
                double*) {
  return false;
}

#endif

}  // namespace plumbline::analysis
