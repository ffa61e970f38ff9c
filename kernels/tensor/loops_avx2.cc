#include "kernels/tensor/loops_avx2.h"

#if defined(__x86_64__)

#include "kernels/core/avx2_lanes.h"

namespace plumbline {

bool Avx2Loops::Supported() { return HasAvx2(); }

PLUMB_AVX2 void Avx2Loops::Widen(const std::byte* data, DType t, int n, uint32_t* words) {
  int done = 0;
  if (t == DType::kF16) {
    for (; done + 8 <= n; done += 8) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + done / 8);
      _mm256_storeu_ps(reinterpret_cast<float*>(words + done), _mm256_cvtph_ps(codes));
    }
  }
  internal::Widen(data + static_cast<size_t>(done) * DTypeSize(t), t, n - done, words + done);
}

// Counts non-zero magnitudes below two bounds. m - 1 is compared as a signed number: both sides are
// shifted down by half the range.
template <typename W>
struct BelowCounts;

template <>
struct BelowCounts<uint32_t> {
  PLUMB_AVX2_INLINE __m256i Bound(uint32_t bound) {
    return _mm256_set1_epi32(static_cast<int>(bound + 0x7fffffffu));
  }
  PLUMB_AVX2_INLINE void Add(const uint32_t* words, const __m256i* bounds, __m256i* found) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    const __m256i key = _mm256_add_epi32(_mm256_and_si256(Load(words), mask), mask);
    for (int k = 0; k < 2; ++k)
      found[k] = _mm256_sub_epi32(found[k], _mm256_cmpgt_epi32(bounds[k], key));
  }
  PLUMB_AVX2_INLINE uint64_t Sum(__m256i found) { return Sum32(found); }
};

template <>
struct BelowCounts<uint16_t> {
  PLUMB_AVX2_INLINE __m256i Bound(uint16_t bound) {
    return _mm256_set1_epi16(static_cast<int16_t>(bound + 0x7fff));
  }
  PLUMB_AVX2_INLINE void Add(const uint16_t* words, const __m256i* bounds, __m256i* found) {
    const __m256i mask = _mm256_set1_epi16(0x7fff);
    const __m256i key = _mm256_add_epi16(_mm256_and_si256(Load(words), mask), mask);
    for (int k = 0; k < 2; ++k)
      found[k] = _mm256_sub_epi16(found[k], _mm256_cmpgt_epi16(bounds[k], key));
  }
  PLUMB_AVX2_INLINE uint64_t Sum(__m256i found) { return Sum16(found); }
};

template <typename W>
PLUMB_AVX2_INLINE void CountBelowOf(const W* words, int n, W low, W high, uint64_t* below_low,
                                    uint64_t* below_high) {
  constexpr int kStep = 32 / sizeof(W);
  const __m256i bounds[2] = {BelowCounts<W>::Bound(low), BelowCounts<W>::Bound(high)};
  __m256i found[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 4
  for (int i = 0; i < n; i += kStep) BelowCounts<W>::Add(words + i, bounds, found);
  *below_low += BelowCounts<W>::Sum(found[0]);
  *below_high += BelowCounts<W>::Sum(found[1]);
}

template <typename W>
PLUMB_AVX2_INLINE void CountBelowOf(const W* words, uint64_t groups, W low, W high,
                                    uint64_t* below_low, uint64_t* below_high) {
  constexpr int kStep = 32 / sizeof(W);
  const __m256i bounds[2] = {BelowCounts<W>::Bound(low), BelowCounts<W>::Bound(high)};
  __m256i found[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (; groups != 0; groups &= groups - 1) {
    const W* group = words + __builtin_ctzll(groups) * kGroup;
    for (int i = 0; i < kGroup; i += kStep) BelowCounts<W>::Add(group + i, bounds, found);
  }
  *below_low += BelowCounts<W>::Sum(found[0]);
  *below_high += BelowCounts<W>::Sum(found[1]);
}

PLUMB_AVX2 void Avx2Loops::CountBelow(const uint32_t* words, int n, uint32_t low, uint32_t high,
                                      uint64_t* below_low, uint64_t* below_high) {
  CountBelowOf(words, n, low, high, below_low, below_high);
}
PLUMB_AVX2 void Avx2Loops::CountBelow(const uint16_t* words, int n, uint16_t low, uint16_t high,
                                      uint64_t* below_low, uint64_t* below_high) {
  CountBelowOf(words, n, low, high, below_low, below_high);
}
PLUMB_AVX2 void Avx2Loops::CountBelowIn(const uint32_t* words, uint64_t groups, uint32_t low,
                                        uint32_t high, uint64_t* below_low, uint64_t* below_high) {
  CountBelowOf(words, groups, low, high, below_low, below_high);
}
PLUMB_AVX2 void Avx2Loops::CountBelowIn(const uint16_t* words, uint64_t groups, uint16_t low,
                                        uint16_t high, uint64_t* below_low, uint64_t* below_high) {
  CountBelowOf(words, groups, low, high, below_low, below_high);
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

// Returns the sum of u v + u + v, from the sums of u v, of u + 2^32 v and of v; modulo 2^64.
PLUMB_AVX2_INLINE uint64_t DigestSum(__m256i product, __m256i whole, __m256i upper) {
  const uint64_t v = Sum64(upper);
  return Sum64(product) + Sum64(whole) - (v << 32) + v;
}

PLUMB_AVX2 Digest Avx2Loops::DigestWords(const std::byte* data, size_t words, DigestKey key) {
  const __m256i block[2] = {_mm256_set1_epi64x(static_cast<int64_t>(key.low)),
                            _mm256_set1_epi64x(static_cast<int64_t>(key.high))};
  const uint64_t* table[2] = {kDigestTable.low.data(), kDigestTable.high.data()};
  const __m256i zero = _mm256_setzero_si256();
  __m256i product[2] = {zero, zero};
  __m256i whole[2] = {zero, zero};
  __m256i upper[2] = {zero, zero};
  size_t i = 0;
#pragma GCC unroll 4
  for (; i + 4 <= words; i += 4) {
    const __m256i word = Load(data + 8 * i);
    for (int k = 0; k < 2; ++k) {
      const __m256i t = _mm256_xor_si256(_mm256_xor_si256(word, block[k]), Load(table[k] + i));
      const __m256i v = _mm256_srli_epi64(t, 32);
      product[k] = _mm256_add_epi64(product[k], _mm256_mul_epu32(t, v));
      whole[k] = _mm256_add_epi64(whole[k], t);
      upper[k] = _mm256_add_epi64(upper[k], v);
    }
  }
  Digest sum{DigestSum(product[0], whole[0], upper[0]), DigestSum(product[1], whole[1], upper[1])};
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
