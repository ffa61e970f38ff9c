// Counts exponent fields with vectors.
#include "kernels/tensor/loops_avx2.h"

#if defined(__x86_64__)

#include "kernels/core/avx2_lanes.h"

namespace plumbline {
namespace {

// Returns bytes of the exponent fields of 32 words of bf16, in any order.
PLUMB_AVX2_INLINE __m256i FieldsOf(__m256i a, __m256i b) {
  const __m256i upper = _mm256_set1_epi16(-0x100);
  const __m256i low = _mm256_srli_epi16(_mm256_add_epi16(b, b), 8);
  return _mm256_blendv_epi8(low, _mm256_add_epi16(a, a), upper);
}
PLUMB_AVX2_INLINE __m256i Fields(const uint16_t* words) {
  return FieldsOf(Load(words), Load(words + 16));
}
// Returns the upper halves of 16 words, in any order: their fields are those of bf16.
PLUMB_AVX2_INLINE __m256i UpperHalves(const uint32_t* words) {
  return _mm256_blend_epi16(_mm256_srli_epi32(Load(words), 16), Load(words + 8), 0xaa);
}
PLUMB_AVX2_INLINE __m256i Fields(const uint32_t* words) {
  return FieldsOf(UpperHalves(words), UpperHalves(words + 16));
}

// Fields are counted kFieldsAtOnce at a time. The place of a field is its distance from the lowest
// of these. Table t has the units of places 2 t and 2 t + 1, whose counters have half a byte. Six
// tables and six counters use all available registers.
constexpr int kTables = 6;
constexpr int kFieldsAtOnce = 2 * kTables;
constexpr int kMostInHalf = 15;
alignas(32) constexpr uint8_t kUnits[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 16};

PLUMB_AVX2_INLINE __m256i Units(int table) {
  return _mm256_broadcastsi128_si256(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(kUnits + 16 - 2 * table)));
}

// The lowest field of those counted together, in each byte.
struct Lowest {
  __m256i field;
  __m256i below;  // one less
};

// Returns places: below 16, or with the top bit set if a field is lower, which looks up 0.
PLUMB_AVX2_INLINE __m256i PlacesOf(__m256i fields, const Lowest& lowest) {
  return _mm256_sub_epi8(_mm256_max_epu8(fields, lowest.below), lowest.field);
}
template <typename W>
PLUMB_AVX2_INLINE __m256i PlacesAt(const W* words, int group, const Lowest& lowest) {
  return PlacesOf(Fields(words + group * kGroup), lowest);
}
PLUMB_AVX2_INLINE __m256i PlacesAt(const __m256i* places, int i, const Lowest&) {
  return places[i];
}

// Adds to bytes[k] the number of places that are k, of at most kMostInHalf vectors.
template <typename From>
PLUMB_AVX2 __attribute__((noinline)) void CountSomePlaces(const From* from, int vectors,
                                                          const Lowest& lowest, __m256i* bytes) {
  const __m256i table[kTables] = {Units(0), Units(1), Units(2), Units(3), Units(4), Units(5)};
  const __m256i zero = _mm256_setzero_si256();
  __m256i a = zero, b = zero, c = zero, d = zero, e = zero, f = zero;
  for (int i = 0; i < vectors; ++i) {
    const __m256i place = PlacesAt(from, i, lowest);
    a = _mm256_add_epi8(a, _mm256_shuffle_epi8(table[0], place));
    b = _mm256_add_epi8(b, _mm256_shuffle_epi8(table[1], place));
    c = _mm256_add_epi8(c, _mm256_shuffle_epi8(table[2], place));
    d = _mm256_add_epi8(d, _mm256_shuffle_epi8(table[3], place));
    e = _mm256_add_epi8(e, _mm256_shuffle_epi8(table[4], place));
    f = _mm256_add_epi8(f, _mm256_shuffle_epi8(table[5], place));
  }
  const __m256i half = _mm256_set1_epi8(kMostInHalf);
  const __m256i found[kTables] = {a, b, c, d, e, f};
  for (int t = 0; t < kTables; ++t) {
    const __m256i upper = _mm256_srli_epi16(found[t], 4);
    bytes[2 * t] = _mm256_add_epi8(bytes[2 * t], _mm256_and_si256(found[t], half));
    bytes[2 * t + 1] = _mm256_add_epi8(bytes[2 * t + 1], _mm256_and_si256(upper, half));
  }
}

// Computes the sums of the bytes of each of four vectors.
PLUMB_AVX2_INLINE void SumBytes4(const __m256i* bytes, uint32_t* sums) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i all = _mm256_sad_epu8(bytes[0], zero);
  for (int k = 1; k < 4; ++k)  // below 2^13, and in all four lanes below 2^16
    all = _mm256_or_si256(all, _mm256_slli_epi64(_mm256_sad_epu8(bytes[k], zero), 16 * k));
  const uint64_t packed = Sum64(all);
  for (int k = 0; k < 4; ++k) sums[k] = static_cast<uint16_t>(packed >> (16 * k));
}

PLUMB_AVX2_INLINE const __m256i* Beyond(const __m256i* places, int i) { return places + i; }
template <typename W>
PLUMB_AVX2_INLINE const W* Beyond(const W* words, int group) {
  return words + group * kGroup;
}

template <typename From>
PLUMB_AVX2_INLINE void CountPlaces(const From* from, int vectors, const Lowest& lowest,
                                   uint32_t* counts) {
  static_assert(kGroups < 256);  // bytes do not overflow
  __m256i bytes[kFieldsAtOnce];
  for (__m256i& b : bytes) b = _mm256_setzero_si256();
  for (int i = 0; i < vectors; i += kMostInHalf)
    CountSomePlaces(Beyond(from, i), std::min(kMostInHalf, vectors - i), lowest, bytes);
  for (int k = 0; k < kFieldsAtOnce; k += 4) SumBytes4(bytes + k, counts + k);
}

// Counts from the highest fields down. For lower fields, reads only the groups that have such
// fields.
template <typename W>
PLUMB_AVX2_INLINE void CountFieldsOf(const W* words, int n, const W* least, int first, int last,
                                     uint32_t* counts) {
  constexpr int kMostByVector = 8 * kFieldsAtOnce;  // above this, counting one word at a time is
                                                    // faster
  if (last - first >= kMostByVector) {
    PortableLoops::CountFields(words, n, least, first, last, counts);
    return;
  }
  const int groups = n / kGroup;
  for (int top = last; top >= first;) {
    const int bottom = std::max(top - kFieldsAtOnce + 1, 1);
    const Lowest lowest = {_mm256_set1_epi8(static_cast<char>(bottom)),
                           _mm256_set1_epi8(static_cast<char>(bottom - 1))};
    uint32_t found[kFieldsAtOnce];
    if (top == last) {
      CountPlaces(words, groups, lowest, found);
    } else {
      __m256i places[kGroups];
      int chosen = 0;
      const __m256i above = _mm256_set1_epi8(static_cast<char>(top + 1));
      const W bound = static_cast<W>(static_cast<W>(top + 1) << WordFormat<W>::kFractionBits);
      uint64_t some = Avx2Loops::GroupsBelow(least, groups, static_cast<W>(bound - 1));
      for (; some != 0; some &= some - 1) {
        const __m256i fields = Fields(words + __builtin_ctzll(some) * kGroup);
        places[chosen++] = PlacesOf(_mm256_min_epu8(fields, above), lowest);
      }
      CountPlaces(places, chosen, lowest, found);
    }
    for (int k = std::max(bottom, first); k <= top; ++k) counts[k] += found[k - bottom];
    top = bottom - 1;
  }
}

}  // namespace

PLUMB_AVX2 void Avx2Loops::CountFields(const uint16_t* words, int n, const uint16_t* least,
                                       int first, int last, uint32_t* counts) {
  CountFieldsOf(words, n, least, first, last, counts);
}
PLUMB_AVX2 void Avx2Loops::CountFields(const uint32_t* words, int n, const uint32_t* least,
                                       int first, int last, uint32_t* counts) {
  CountFieldsOf(words, n, least, first, last, counts);
}

}  // namespace plumbline

#endif
