#include "kernels/tensor_loops_avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "base/half.h"

#define PLUMB_AVX2 __attribute__((target("avx2")))
#define PLUMB_AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

namespace plumbline {
namespace {

PLUMB_AVX2_INLINE __m256i Load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

PLUMB_AVX2_INLINE __m128i Halves32Max(__m256i v) {
  __m128i x = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
}
PLUMB_AVX2_INLINE uint32_t Max32(__m256i v) {
  return static_cast<uint32_t>(_mm_cvtsi128_si32(Halves32Max(v)));
}
PLUMB_AVX2_INLINE uint32_t Min32(__m256i v) {
  __m128i x = _mm_min_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  x = _mm_min_epu32(x, _mm_shuffle_epi32(x, 0x4e));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_min_epu32(x, _mm_shuffle_epi32(x, 0xb1))));
}
PLUMB_AVX2_INLINE uint16_t Min16(__m256i v) {
  const __m128i x = _mm_min_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(x)));
}
PLUMB_AVX2_INLINE uint16_t Max16(__m256i v) {
  return static_cast<uint16_t>(~Min16(_mm256_xor_si256(v, _mm256_set1_epi32(-1))));
}

constexpr uint64_t kTop64 = uint64_t{1} << 63;

PLUMB_AVX2_INLINE __m256i Larger64(__m256i a, __m256i b) {
  return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b));
}
PLUMB_AVX2_INLINE __m256i Smaller64(__m256i a, __m256i b) {
  return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}
// The largest lane, as signed integers.
PLUMB_AVX2_INLINE uint64_t Max64(__m256i v) {
  alignas(32) int64_t lane[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), v);
  return static_cast<uint64_t>(std::max(std::max(lane[0], lane[1]), std::max(lane[2], lane[3])));
}

PLUMB_AVX2_INLINE uint64_t Min64(__m256i v) {
  alignas(32) int64_t lane[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), v);
  return static_cast<uint64_t>(std::min(std::min(lane[0], lane[1]), std::min(lane[2], lane[3])));
}

PLUMB_AVX2_INLINE uint64_t Sum64(__m256i v) {
  const __m128i x = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(x)) +
         static_cast<uint64_t>(_mm_extract_epi64(x, 1));
}
// Sums of unsigned lanes of 32 and 16 bits.
PLUMB_AVX2_INLINE uint64_t Sum32(__m256i v) {
  const __m256i even = _mm256_and_si256(v, _mm256_set1_epi64x(0xffffffff));
  return Sum64(_mm256_add_epi64(even, _mm256_srli_epi64(v, 32)));
}
PLUMB_AVX2_INLINE uint64_t Sum16(__m256i v) {
  const __m256i even = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
  return Sum32(_mm256_add_epi32(even, _mm256_srli_epi32(v, 16)));
}

PLUMB_AVX2_INLINE double SumOf(__m256d v) {
  alignas(32) double lane[4];
  _mm256_store_pd(lane, v);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// The sum of the lanes of both, in units of 2^unit.
PLUMB_AVX2_INLINE int64_t Units(const __m256d* v, int unit) {
  return static_cast<int64_t>((SumOf(v[0]) + SumOf(v[1])) * PowerOfTwo(-unit));
}

// Bytes of `kGroup` exponent fields, in any order.
PLUMB_AVX2_INLINE __m256i Fields(const uint16_t* words) {
  const __m256i a = _mm256_srli_epi16(_mm256_slli_epi16(Load(words), 1), 8);
  const __m256i b = _mm256_srli_epi16(_mm256_slli_epi16(Load(words + 16), 1), 8);
  return _mm256_packus_epi16(a, b);
}
PLUMB_AVX2_INLINE __m256i Field32(const uint32_t* words) {
  return _mm256_srli_epi32(_mm256_slli_epi32(Load(words), 1), 24);
}
PLUMB_AVX2_INLINE __m256i Fields(const uint32_t* words) {
  const __m256i a = _mm256_packus_epi32(Field32(words), Field32(words + 8));
  const __m256i b = _mm256_packus_epi32(Field32(words + 16), Field32(words + 24));
  return _mm256_packus_epi16(a, b);
}

constexpr int kFieldsAtOnce = 5;  // more would leave too few registers

// How many bytes of `fields` equal first, first + 1, ... first + kFieldsAtOnce - 1.
PLUMB_AVX2_INLINE void CountSomeFields(const __m256i* fields, int vectors, int first,
                                       uint32_t* counts) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i found[kFieldsAtOnce];
  for (__m256i& f : found) f = zero;
  __m256i wanted[kFieldsAtOnce];
  for (int k = 0; k < kFieldsAtOnce; ++k)
    wanted[k] = _mm256_set1_epi8(static_cast<char>(first + k));
  for (int i = 0; i < vectors; ++i) {  // at most kGroups, so bytes do not overflow
    const __m256i field = fields[i];
    for (int k = 0; k < kFieldsAtOnce; ++k) {
      found[k] = _mm256_sub_epi8(found[k], _mm256_cmpeq_epi8(field, wanted[k]));
    }
  }
  for (int k = 0; k < kFieldsAtOnce; ++k) {
    counts[k] += static_cast<uint32_t>(Sum64(_mm256_sad_epu8(found[k], zero)));
  }
}

template <typename W>
PLUMB_AVX2_INLINE void CountFieldsOf(const W* words, int n, int first, int last, uint32_t* counts) {
  static_assert(kGroups < 256);
  constexpr int kMostByVector = 40;  // fields; beyond, one word at a time is quicker
  if (last - first >= kMostByVector) {
    PortableLoops::CountFields(words, n, first, last, counts);
    return;
  }
  __m256i fields[kGroups];
  const int vectors = n / kGroup;
  for (int g = 0; g < vectors; ++g) fields[g] = Fields(words + g * kGroup);
  for (int field = first; field <= last; field += kFieldsAtOnce) {
    uint32_t some[kFieldsAtOnce] = {};
    CountSomeFields(fields, vectors, field, some);
    for (int k = 0; k < kFieldsAtOnce && field + k <= last; ++k) counts[field + k] += some[k];
  }
}

// Which groups hold no value (zero apart) below the magnitude `bound`, and how many.
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

PLUMB_AVX2 void Avx2Loops::Widen(const std::byte* data, DType t, int n, uint32_t* words) {
  internal::Widen(data, t, n, words);
}

// 64-bit lanes compare as signed integers only, so unsigned ones are kept with the top bit flipped.
PLUMB_AVX2 void Avx2Loops::Scan(const uint64_t* words, int n, ChunkScan<uint64_t>* scan) {
  const __m256i mask = _mm256_set1_epi64x(0x7fffffffffffffff);
  const __m256i top = _mm256_set1_epi64x(static_cast<int64_t>(kTop64));
  __m256i positive = _mm256_setzero_si256();
  __m256i negative = top;
  scan->most_of_all = 0;
  scan->least_of_all = ~uint64_t{0};
  for (int g = 0; g < n / kGroup; ++g) {
    __m256i most = _mm256_setzero_si256();
    __m256i least = mask;
    for (int i = 0; i < kGroup; i += 4) {
      const __m256i word = Load(words + g * kGroup + i);
      const __m256i m = _mm256_and_si256(word, mask);
      most = Larger64(most, m);
      least = Smaller64(least, _mm256_add_epi64(m, mask));  // m - 1, flipped
      positive = Larger64(positive, word);
      negative = Larger64(negative, _mm256_xor_si256(word, top));
    }
    scan->most[g] = Max64(most);
    scan->least[g] = Min64(least) ^ kTop64;
    scan->most_of_all = std::max(scan->most_of_all, scan->most[g]);
    scan->least_of_all = std::min(scan->least_of_all, scan->least[g]);
  }
  const uint64_t high = Max64(negative) ^ kTop64;
  scan->positive = Max64(positive);
  scan->negative = high >= kTop64 ? high & kMagnitudeMask<uint64_t> : 0;
}

PLUMB_AVX2 void Avx2Loops::Scan(const uint32_t* words, int n, ChunkScan<uint32_t>* scan) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  const __m256i minus_one = _mm256_set1_epi32(-1);
  __m256i positive = _mm256_setzero_si256();
  __m256i negative = _mm256_setzero_si256();
  __m256i most_of_all = _mm256_setzero_si256();
  __m256i least_of_all = minus_one;
  for (int g = 0; g < n / kGroup; ++g) {
    __m256i most = _mm256_setzero_si256();
    __m256i least = minus_one;
    for (int i = 0; i < kGroup; i += 8) {
      const __m256i word = Load(words + g * kGroup + i);
      const __m256i m = _mm256_and_si256(word, mask);
      most = _mm256_max_epu32(most, m);
      least = _mm256_min_epu32(least, _mm256_add_epi32(m, minus_one));
      positive = _mm256_max_epi32(positive, word);
      negative = _mm256_max_epu32(negative, word);
    }
    scan->most[g] = Max32(most);
    scan->least[g] = Min32(least);
    most_of_all = _mm256_max_epu32(most_of_all, most);
    least_of_all = _mm256_min_epu32(least_of_all, least);
  }
  scan->most_of_all = Max32(most_of_all);
  scan->least_of_all = Min32(least_of_all);
  const uint32_t high = Max32(negative);
  scan->positive = Max32(positive);  // words with a sign are negative numbers and lose against 0
  scan->negative = high >> 31 != 0 ? high & kMagnitudeMask<uint32_t> : 0;
}

PLUMB_AVX2 void Avx2Loops::Scan(const uint16_t* words, int n, ChunkScan<uint16_t>* scan) {
  const __m256i mask = _mm256_set1_epi16(0x7fff);
  const __m256i minus_one = _mm256_set1_epi16(-1);
  __m256i positive = _mm256_setzero_si256();
  __m256i negative = _mm256_setzero_si256();
  __m256i most_of_all = _mm256_setzero_si256();
  __m256i least_of_all = minus_one;
  for (int g = 0; g < n / kGroup; ++g) {
    const __m256i a = Load(words + g * kGroup);
    const __m256i b = Load(words + g * kGroup + 16);
    const __m256i ma = _mm256_and_si256(a, mask);
    const __m256i mb = _mm256_and_si256(b, mask);
    positive = _mm256_max_epi16(positive, _mm256_max_epi16(a, b));
    negative = _mm256_max_epu16(negative, _mm256_max_epu16(a, b));
    const __m256i most = _mm256_max_epu16(ma, mb);
    const __m256i least =
        _mm256_min_epu16(_mm256_add_epi16(ma, minus_one), _mm256_add_epi16(mb, minus_one));
    scan->most[g] = Max16(most);
    scan->least[g] = Min16(least);
    most_of_all = _mm256_max_epu16(most_of_all, most);
    least_of_all = _mm256_min_epu16(least_of_all, least);
  }
  scan->most_of_all = Max16(most_of_all);
  scan->least_of_all = Min16(least_of_all);
  const uint16_t high = Max16(negative);
  scan->positive = Max16(positive);
  scan->negative = high >> 15 != 0 ? high & kMagnitudeMask<uint16_t> : uint16_t{0};
}

// Unsigned comparison of m - 1 as a signed one: both sides are moved down by half the range.
PLUMB_AVX2 void Avx2Loops::CountBelow(const uint32_t* words, int n, uint32_t low, uint32_t high,
                                      uint64_t* below_low, uint64_t* below_high) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  const __m256i first = _mm256_set1_epi32(static_cast<int>(low + 0x7fffffffu));
  const __m256i second = _mm256_set1_epi32(static_cast<int>(high + 0x7fffffffu));
  __m256i a = _mm256_setzero_si256();
  __m256i b = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 8) {
    const __m256i key = _mm256_add_epi32(_mm256_and_si256(Load(words + i), mask), mask);
    a = _mm256_sub_epi32(a, _mm256_cmpgt_epi32(first, key));
    b = _mm256_sub_epi32(b, _mm256_cmpgt_epi32(second, key));
  }
  *below_low += Sum32(a);
  *below_high += Sum32(b);
}

PLUMB_AVX2 void Avx2Loops::CountBelow(const uint16_t* words, int n, uint16_t low, uint16_t high,
                                      uint64_t* below_low, uint64_t* below_high) {
  const __m256i mask = _mm256_set1_epi16(0x7fff);
  const __m256i first = _mm256_set1_epi16(static_cast<int16_t>(low + 0x7fff));
  const __m256i second = _mm256_set1_epi16(static_cast<int16_t>(high + 0x7fff));
  __m256i a = _mm256_setzero_si256();
  __m256i b = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 16) {
    const __m256i key = _mm256_add_epi16(_mm256_and_si256(Load(words + i), mask), mask);
    a = _mm256_sub_epi16(a, _mm256_cmpgt_epi16(first, key));
    b = _mm256_sub_epi16(b, _mm256_cmpgt_epi16(second, key));
  }
  *below_low += Sum16(a);
  *below_high += Sum16(b);
}

PLUMB_AVX2 uint64_t Avx2Loops::CountFrom(const uint32_t* words, int n, uint32_t bound) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  const __m256i below = _mm256_set1_epi32(static_cast<int>(bound - 1));
  __m256i found = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 8) {
    found =
        _mm256_sub_epi32(found, _mm256_cmpgt_epi32(_mm256_and_si256(Load(words + i), mask), below));
  }
  return Sum32(found);
}

PLUMB_AVX2 uint64_t Avx2Loops::CountFrom(const uint16_t* words, int n, uint16_t bound) {
  const __m256i mask = _mm256_set1_epi16(0x7fff);
  const __m256i below = _mm256_set1_epi16(static_cast<int16_t>(bound - 1));
  __m256i found = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 16) {
    found =
        _mm256_sub_epi16(found, _mm256_cmpgt_epi16(_mm256_and_si256(Load(words + i), mask), below));
  }
  return Sum16(found);
}

PLUMB_AVX2 void Avx2Loops::CountFields(const uint16_t* words, int n, int first, int last,
                                       uint32_t* counts) {
  CountFieldsOf(words, n, first, last, counts);
}
PLUMB_AVX2 void Avx2Loops::CountFields(const uint32_t* words, int n, int first, int last,
                                       uint32_t* counts) {
  CountFieldsOf(words, n, first, last, counts);
}

// With |x| < 2^(E+1) and every x a multiple of 2^(E-41), doubles add up 2^11 values exactly. A
// square is a multiple of 2^(2E-82) below 2^(2E+2): its part in multiples of 2^(2E-40), and the
// rest, are exact sums as well. (Error-free extraction: Rump, Ogita, Oishi, "Accurate
// floating-point summation", 2008.)
PLUMB_AVX2 int Avx2Loops::SumGroups(const uint32_t* words, int n, const ChunkScan<uint32_t>& scan,
                                    bool* added, ChunkSums* sums) {
  static_assert(kChunk <= 1 << 11);
  const int field = std::max(static_cast<int>(scan.most_of_all >> 23), 1);
  const int e = field - 127;
  const uint32_t bound = field > 19 ? static_cast<uint32_t>(field - 18) << 23 : 0;
  const int chosen = ChooseGroups(scan, n / kGroup, bound, added);
  if (chosen == 0) return 0;
  const __m256d magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7fffffffffffffff));
  const __m256d extractor = _mm256_set1_pd(1.5 * PowerOfTwo(2 * e + 12));
  const __m256d zero = _mm256_setzero_pd();
  __m256d sum[2] = {zero, zero};
  __m256d magnitudes[2] = {zero, zero};
  __m256d high[2] = {zero, zero};
  __m256d low[2] = {zero, zero};
  for (int g = 0; g < n / kGroup; ++g) {
    if (!added[g]) continue;
    for (int i = 0; i < kGroup; i += 8) {
      const auto* from = reinterpret_cast<const float*>(words + g * kGroup + i);
      for (int k = 0; k < 2; ++k) {
        const __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(from + 4 * k));
        sum[k] = _mm256_add_pd(sum[k], x);
        magnitudes[k] = _mm256_add_pd(magnitudes[k], _mm256_and_pd(x, magnitude));
        const __m256d square = _mm256_mul_pd(x, x);
        const __m256d part = _mm256_sub_pd(_mm256_add_pd(square, extractor), extractor);
        high[k] = _mm256_add_pd(high[k], part);
        low[k] = _mm256_add_pd(low[k], _mm256_sub_pd(square, part));
      }
    }
  }
  sums->unit = e - 41;
  sums->sum = Units(sum, e - 41);
  sums->magnitudes = static_cast<Uint128>(Units(magnitudes, e - 41));
  sums->squares = static_cast<Uint128>(Units(high, 2 * e - 40)) << 42;
  sums->squares += static_cast<Uint128>(static_cast<Int128>(Units(low, 2 * e - 82)));
  return chosen;
}

// 8-bit significands: with |x| < 2^(E+1) and every x a multiple of 2^(E-21), x 2^(21-E) is an
// integer of 22 bits, and 256 of them fit a lane.
PLUMB_AVX2 int Avx2Loops::SumGroups(const uint16_t* words, int n, const ChunkScan<uint16_t>& scan,
                                    bool* added, ChunkSums* sums) {
  static_assert(kChunk / 8 <= 1 << 8);
  const int field = scan.most_of_all >> 7;
  if (field < 27) return 0;  // the factor would overflow
  const int e = field - 127;
  const auto bound = static_cast<uint16_t>((field - 14) << 7);
  const int chosen = ChooseGroups(scan, n / kGroup, bound, added);
  if (chosen == 0) return 0;
  const __m256 factor = _mm256_set1_ps(static_cast<float>(PowerOfTwo(21 - e)));
  const __m256i zero = _mm256_setzero_si256();
  __m256i sum = zero;
  __m256i magnitudes = zero;
  __m256i even = zero;
  __m256i odd = zero;
  for (int g = 0; g < n / kGroup; ++g) {
    if (!added[g]) continue;
    for (int i = 0; i < kGroup; i += 16) {
      const __m256i word = Load(words + g * kGroup + i);
      for (int k = 0; k < 2; ++k) {
        const __m256i wide =
            k == 0 ? _mm256_unpacklo_epi16(zero, word) : _mm256_unpackhi_epi16(zero, word);
        const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(wide), factor));
        sum = _mm256_add_epi32(sum, q);
        magnitudes = _mm256_add_epi32(magnitudes, _mm256_abs_epi32(q));
        even = _mm256_add_epi64(even, _mm256_mul_epi32(q, q));
        const __m256i other = _mm256_srli_epi64(q, 32);
        odd = _mm256_add_epi64(odd, _mm256_mul_epi32(other, other));
      }
    }
  }
  alignas(32) int32_t lane[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), sum);
  int64_t total = 0;
  for (const int32_t part : lane) total += part;
  sums->unit = e - 21;
  sums->sum = total;
  sums->magnitudes = Sum32(magnitudes);
  sums->squares = Sum64(_mm256_add_epi64(even, odd));
  return chosen;
}

PLUMB_AVX2 uint64_t Avx2Loops::GroupsBelow(const uint16_t* least, int groups, uint16_t bound) {
  static_assert(kGroups == 64);
  const __m256i last = _mm256_set1_epi16(static_cast<int16_t>(bound - 1));
  uint64_t found = 0;
  for (int i = 0; i < kGroups; i += 32) {
    const __m256i a = Load(least + i);
    const __m256i b = Load(least + i + 16);
    const __m256i bytes = _mm256_packs_epi16(_mm256_cmpeq_epi16(_mm256_min_epu16(a, last), a),
                                             _mm256_cmpeq_epi16(_mm256_min_epu16(b, last), b));
    const int bits = _mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0xd8));
    found |= static_cast<uint64_t>(static_cast<uint32_t>(bits)) << i;
  }
  return found & (~uint64_t{0} >> (kGroups - groups));
}
PLUMB_AVX2 uint64_t Avx2Loops::GroupsBelow(const uint32_t* least, int groups, uint32_t bound) {
  const __m256i last = _mm256_set1_epi32(static_cast<int>(bound - 1));
  uint64_t found = 0;
  for (int i = 0; i < kGroups; i += 8) {
    const __m256i a = Load(least + i);
    const __m256i below = _mm256_cmpeq_epi32(_mm256_min_epu32(a, last), a);
    const int bits = _mm256_movemask_ps(_mm256_castsi256_ps(below));
    found |= static_cast<uint64_t>(static_cast<uint32_t>(bits)) << i;
  }
  return found & (~uint64_t{0} >> (kGroups - groups));
}

PLUMB_AVX2 bool Avx2Loops::FlagSmall(const uint16_t* most, const uint16_t* least, int n,
                                     uint16_t* flags) {
  return internal::FlagSmall(most, least, n, flags);
}
PLUMB_AVX2 bool Avx2Loops::FlagSmall(const uint32_t* most, const uint32_t* least, int n,
                                     uint32_t* flags) {
  return internal::FlagSmall(most, least, n, flags);
}

PLUMB_AVX2 Digest Avx2Loops::DigestWords(const std::byte* data, size_t words, DigestKey key) {
  const __m256i mask = _mm256_set1_epi64x(0xffffffff);
  const __m256i block[2] = {_mm256_set1_epi64x(static_cast<int64_t>(key.low)),
                            _mm256_set1_epi64x(static_cast<int64_t>(key.high))};
  const uint64_t* table[2] = {kDigestTable.low.data(), kDigestTable.high.data()};
  const __m256i zero = _mm256_setzero_si256();
  __m256i product[2] = {zero, zero};
  __m256i halves[2] = {zero, zero};
  size_t i = 0;
  for (; i + 4 <= words; i += 4) {
    const __m256i word = Load(data + 8 * i);
    for (int k = 0; k < 2; ++k) {
      const __m256i t = _mm256_xor_si256(_mm256_xor_si256(word, block[k]), Load(table[k] + i));
      const __m256i v = _mm256_srli_epi64(t, 32);
      product[k] = _mm256_add_epi64(product[k], _mm256_mul_epu32(t, v));
      halves[k] = _mm256_add_epi64(halves[k], _mm256_add_epi64(_mm256_and_si256(t, mask), v));
    }
  }
  Digest sum{Sum64(_mm256_add_epi64(product[0], halves[0])),
             Sum64(_mm256_add_epi64(product[1], halves[1]))};
  for (; i < words; ++i) {
    uint64_t word;
    __builtin_memcpy(&word, data + 8 * i, 8);
    sum.low += DigestWord(word, kDigestTable.low[i] ^ key.low);
    sum.high += DigestWord(word, kDigestTable.high[i] ^ key.high);
  }
  return sum;
}

}  // namespace plumbline

#endif
