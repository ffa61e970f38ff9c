// Exact sums of a chunk's values, magnitudes and squares with vectors.
#include "kernels/tensor/loops_avx2.h"

#if defined(__x86_64__)

#include "base/half.h"
#include "kernels/core/avx2_lanes.h"

namespace plumbline {
namespace {

// Returns the sum of the lanes of both, in units of 2^unit.
PLUMB_AVX2_INLINE int64_t Units(const __m256d* v, int unit) {
  return static_cast<int64_t>((SumOf(v[0]) + SumOf(v[1])) * PowerOfTwo(-unit));
}

// Returns which groups have no value (except zero) below the magnitude `bound`, and their number.
template <typename W>
int ChooseGroups(const ChunkScan<W>& scan, int groups, W bound, bool* added) {
  const bool all = bound == 0 || scan.least_of_all >= static_cast<W>(bound - 1);
  int chosen = 0;
  for (int g = 0; g < groups; ++g) {
    added[g] = all || scan.least[g] >= static_cast<W>(bound - 1);
    chosen += added[g] ? 1 : 0;
  }
  return chosen;
}

}  // namespace

// With |x| < 2^(E+1) and every x a multiple of 2^(E-41), doubles add up 2^11 values exactly. A
// square is a multiple of 2^(2E-82) below 2^(2E+2). Added to a double of 1.5 2^(2E+12), whose unit
// is 2^(2E-40) and stays so, it is rounded to that unit; the remainder, at most half a unit, is a
// double too, and 2^11 remainders add up exactly. (Error-free extraction: Rump, Ogita, Oishi,
// "Accurate floating-point summation", 2008.)
PLUMB_AVX2 int Avx2Loops::SumGroups(const uint32_t* words, int n, const ChunkScan<uint32_t>& scan,
                                    bool* added, ChunkSums* sums) {
  static_assert(kChunk <= 1 << 11);
  const int field = std::max(static_cast<int>(scan.most_of_all >> 23), 1);
  const int e = field - 127;
  const uint32_t bound = field > 19 ? static_cast<uint32_t>(field - 18) << 23 : 0;
  const int chosen = ChooseGroups(scan, n / kGroup, bound, added);
  if (chosen == 0) return 0;
  constexpr int kLanes = 4;  // vectors of each sum, because additions to one vector wait for each
                             // other
  const __m256d magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7fffffffffffffff));
  const __m256d start = _mm256_set1_pd(1.5 * PowerOfTwo(2 * e + 12));
  const __m256d one = _mm256_set1_pd(1);
  const __m256d zero = _mm256_setzero_pd();
  __m256d sum[2] = {zero, zero};
  __m256d magnitudes[2] = {zero, zero};
  __m256d high[kLanes] = {start, start, start, start};
  __m256d low[2] = {zero, zero};
  for (int g = 0; g < n / kGroup; ++g) {
    if (!added[g]) continue;
    for (int i = 0; i < kGroup; i += 4 * kLanes) {
      const auto* from = reinterpret_cast<const float*>(words + g * kGroup + i);
      for (int k = 0; k < kLanes; ++k) {
        const __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(from + 4 * k));
        // Some additions are done as products by one, because the processor has two units for each
        // kind of operation.
        sum[k & 1] = _mm256_fmadd_pd(x, one, sum[k & 1]);
        magnitudes[k & 1] = _mm256_add_pd(magnitudes[k & 1], _mm256_and_pd(x, magnitude));
        const __m256d with = _mm256_fmadd_pd(x, x, high[k]);
        const __m256d part = _mm256_sub_pd(with, high[k]);
        high[k] = with;
        low[k & 1] = _mm256_add_pd(low[k & 1], _mm256_fmsub_pd(x, x, part));
      }
    }
  }
  __m256d squares[2] = {zero, zero};
  for (int k = 0; k < kLanes; ++k)
    squares[k & 1] = _mm256_add_pd(squares[k & 1], _mm256_sub_pd(high[k], start));
  sums->unit = e - 41;
  sums->sum = Units(sum, e - 41);
  sums->magnitudes = static_cast<Uint128>(Units(magnitudes, e - 41));
  sums->squares = static_cast<Uint128>(Units(squares, 2 * e - 40)) << 42;
  sums->squares += static_cast<Uint128>(static_cast<Int128>(Units(low, 2 * e - 82)));
  return chosen;
}

// Sums of integers of 32 bits and of their squares, for even and odd ones separately.
struct IntegerSums {
  __m256i sum;
  __m256i magnitudes;
  __m256i even;
  __m256i odd;
};

// Adds bf16 times `factor`, which makes them integers; n is a multiple of 16.
PLUMB_AVX2_INLINE void AddIntegers(const uint16_t* words, int n, __m256 factor, IntegerSums* to) {
  const __m256i zero = _mm256_setzero_si256();
  IntegerSums s = *to;
  for (int i = 0; i < n; i += 16) {
    const __m256i word = Load(words + i);
    const __m256i wide[2] = {_mm256_unpacklo_epi16(zero, word), _mm256_unpackhi_epi16(zero, word)};
    for (const __m256i w : wide) {
      const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(w), factor));
      const __m256i other = _mm256_srli_epi64(q, 32);
      s.sum = _mm256_add_epi32(s.sum, q);
      s.magnitudes = _mm256_add_epi32(s.magnitudes, _mm256_abs_epi32(q));
      s.even = _mm256_add_epi64(s.even, _mm256_mul_epi32(q, q));
      s.odd = _mm256_add_epi64(s.odd, _mm256_mul_epi32(other, other));
    }
  }
  *to = s;
}

// 8-bit significands: with |x| < 2^(E+1) and every x a multiple of 2^(E-22), x 2^(22-E) is an
// integer of 23 bits, at most 255 2^15, and 256 of them stay below 2^31.
PLUMB_AVX2 int Avx2Loops::SumGroups(const uint16_t* words, int n, const ChunkScan<uint16_t>& scan,
                                    bool* added, ChunkSums* sums) {
  static_assert(kChunk / 8 <= 1 << 8);
  const int field = scan.most_of_all >> 7;
  if (field < 27) return 0;  // the factor would overflow
  const int e = field - 127;
  const auto bound = static_cast<uint16_t>((field - 15) << 7);
  const int chosen = ChooseGroups(scan, n / kGroup, bound, added);
  if (chosen == 0) return 0;
  const __m256 factor = _mm256_set1_ps(static_cast<float>(PowerOfTwo(22 - e)));
  IntegerSums lanes{};
  if (chosen == n / kGroup) {
    AddIntegers(words, n, factor, &lanes);
  } else {
    for (int g = 0; g < n / kGroup; ++g)
      if (added[g]) AddIntegers(words + g * kGroup, kGroup, factor, &lanes);
  }
  alignas(32) int32_t lane[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), lanes.sum);
  int64_t total = 0;
  for (const int32_t part : lane) total += part;
  sums->unit = e - 22;
  sums->sum = total;
  sums->magnitudes = Sum32(lanes.magnitudes);
  sums->squares = Sum64(_mm256_add_epi64(lanes.even, lanes.odd));
  return chosen;
}

}  // namespace plumbline

#endif
