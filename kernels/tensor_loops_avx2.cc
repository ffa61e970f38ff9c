#include "kernels/tensor_loops_avx2.h"

#if defined(__x86_64__)

#include "kernels/avx2_lanes.h"

namespace plumbline {
namespace {

// Bytes of `kGroup` exponent fields, in any order.
PLUMB_AVX2_INLINE __m256i Fields(const uint16_t* words) {
  const __m256i mask = _mm256_set1_epi16(0x7f80);
  const __m256i a = _mm256_srli_epi16(_mm256_and_si256(Load(words), mask), 7);
  const __m256i b = _mm256_srli_epi16(_mm256_and_si256(Load(words + 16), mask), 7);
  return _mm256_packus_epi16(a, b);
}
// The exponent fields of 16 words: the upper halves of all, in any order, as those of bf16 are.
PLUMB_AVX2_INLINE __m256i Fields16(const uint32_t* words) {
  const __m256i upper =
      _mm256_blend_epi16(_mm256_srli_epi32(Load(words), 16), Load(words + 8), 0xaa);
  return _mm256_srli_epi16(_mm256_and_si256(upper, _mm256_set1_epi16(0x7f80)), 7);
}
PLUMB_AVX2_INLINE __m256i Fields(const uint32_t* words) {
  return _mm256_packus_epi16(Fields16(words), Fields16(words + 16));
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

// From the highest fields down: of the lower ones only the groups that reach so low are looked at.
template <typename W>
PLUMB_AVX2_INLINE void CountFieldsOf(const W* words, int n, const W* least, int first, int last,
                                     uint32_t* counts) {
  static_assert(kGroups < 256);
  constexpr int kMostByVector = 40;  // fields; beyond, one word at a time is quicker
  if (last - first >= kMostByVector) {
    PortableLoops::CountFields(words, n, least, first, last, counts);
    return;
  }
  __m256i fields[kGroups];
  const int groups = n / kGroup;
  for (int g = 0; g < groups; ++g) fields[g] = Fields(words + g * kGroup);
  __m256i low[kGroups];
  for (int top = last; top >= first; top -= kFieldsAtOnce) {
    const W above = static_cast<W>(static_cast<W>(top + 1) << WordFormat<W>::kFractionBits);
    uint64_t some = Avx2Loops::GroupsBelow(least, groups, static_cast<W>(above - 1));
    const int chosen = top == last ? groups : __builtin_popcountll(some);
    for (int i = 0; i < chosen && chosen < groups; ++i, some &= some - 1)
      low[i] = fields[__builtin_ctzll(some)];
    const int bottom = top - kFieldsAtOnce + 1;
    uint32_t found[kFieldsAtOnce] = {};
    CountSomeFields(chosen < groups ? low : fields, chosen, bottom, found);
    for (int k = std::max(first - bottom, 0); k < kFieldsAtOnce; ++k)
      counts[bottom + k] += found[k];
  }
}

}  // namespace

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

// The largest, or smallest, lane of each of four vectors.
PLUMB_AVX2_INLINE __m128i Max32Of4(const __m256i* v) {
  const __m256i a =
      _mm256_max_epu32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
  const __m256i b =
      _mm256_max_epu32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
  const __m256i all = _mm256_max_epu32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  return _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
PLUMB_AVX2_INLINE __m128i Min32Of4(const __m256i* v) {
  const __m256i a =
      _mm256_min_epu32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
  const __m256i b =
      _mm256_min_epu32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
  const __m256i all = _mm256_min_epu32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  return _mm_min_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

// n is a multiple of 4 groups.
PLUMB_AVX2 void Avx2Loops::Scan(const uint32_t* words, int n, ChunkScan<uint32_t>* scan) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  const __m256i minus_one = _mm256_set1_epi32(-1);
  __m256i positive = _mm256_setzero_si256();
  __m256i negative = _mm256_setzero_si256();
  __m128i most_of_all = _mm_setzero_si128();
  __m128i least_of_all = _mm_set1_epi32(-1);
  for (int g = 0; g < n / kGroup; g += 4) {
    __m256i most[4];
    __m256i least[4];
    for (int k = 0; k < 4; ++k) {
      most[k] = _mm256_setzero_si256();
      least[k] = minus_one;
      for (int i = 0; i < kGroup; i += 8) {
        const __m256i word = Load(words + (g + k) * kGroup + i);
        const __m256i m = _mm256_and_si256(word, mask);
        most[k] = _mm256_max_epu32(most[k], m);
        least[k] = _mm256_min_epu32(least[k], _mm256_add_epi32(m, minus_one));
        positive = _mm256_max_epi32(positive, word);
        negative = _mm256_max_epu32(negative, word);
      }
    }
    const __m128i high = Max32Of4(most);
    const __m128i low = Min32Of4(least);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scan->most + g), high);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scan->least + g), low);
    most_of_all = _mm_max_epu32(most_of_all, high);
    least_of_all = _mm_min_epu32(least_of_all, low);
  }
  scan->most_of_all = Max32(_mm256_set_m128i(most_of_all, most_of_all));
  scan->least_of_all = Min32(_mm256_set_m128i(least_of_all, least_of_all));
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

// Counts of non-zero magnitudes below two bounds. m - 1 is compared as a signed number: both sides
// are moved down by half the range.
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

PLUMB_AVX2 void Avx2Loops::CountFields(const uint16_t* words, int n, const uint16_t* least,
                                       int first, int last, uint32_t* counts) {
  CountFieldsOf(words, n, least, first, last, counts);
}
PLUMB_AVX2 void Avx2Loops::CountFields(const uint32_t* words, int n, const uint32_t* least,
                                       int first, int last, uint32_t* counts) {
  CountFieldsOf(words, n, least, first, last, counts);
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

// The sum of u v + u + v, of the sums of u v, of u + 2^32 v and of v; modulo 2^64.
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
