// The scans of tensor/loops_avx2.h.
#include "kernels/tensor/loops_avx2.h"

#if defined(__x86_64__)

#include "kernels/core/avx2_lanes.h"

namespace plumbline {
// 64-bit lanes compare only as signed integers, so unsigned ones are kept with the top bit flipped.
PLUMB_AVX2 void Avx2Loops::Scan(const uint64_t* words, int n, ChunkScan<uint64_t>* scan) {
  const __m256i mask = _mm256_set1_epi64x(0x7fffffffffffffff);
  __m256i most = _mm256_setzero_si256();
  scan->least_of_all = ~uint64_t{0};
  for (int g = 0; g < n / kGroup; ++g) {
    __m256i least = mask;
    for (int i = 0; i < kGroup; i += 4) {
      const __m256i m = _mm256_and_si256(Load(words + g * kGroup + i), mask);
      most = Larger64(most, m);
      least = Smaller64(least, _mm256_add_epi64(m, mask));  // m - 1, flipped
    }
    scan->least[g] = Min64(least) ^ kTop64;
    scan->least_of_all = std::min(scan->least_of_all, scan->least[g]);
  }
  scan->most_of_all = Max64(most);
}

PLUMB_AVX2 void Avx2Loops::ScanMost(const uint64_t* words, int n, ChunkScan<uint64_t>* scan) {
  const __m256i mask = _mm256_set1_epi64x(0x7fffffffffffffff);
  for (int g = 0; g < n / kGroup; ++g) {
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < kGroup; i += 4)
      most = Larger64(most, _mm256_and_si256(Load(words + g * kGroup + i), mask));
    scan->most[g] = Max64(most);
  }
}

PLUMB_AVX2 void Avx2Loops::ScanSigns(const uint64_t* words, int n, ChunkScan<uint64_t>* scan) {
  const __m256i top = _mm256_set1_epi64x(static_cast<int64_t>(kTop64));
  __m256i positive = _mm256_setzero_si256();
  __m256i negative = top;
  for (int i = 0; i < n; i += 4) {
    const __m256i word = Load(words + i);
    positive = Larger64(positive, word);
    negative = Larger64(negative, _mm256_xor_si256(word, top));
  }
  const uint64_t high = Max64(negative) ^ kTop64;
  scan->positive = Max64(positive);
  scan->negative = high >= kTop64 ? high & kMagnitudeMask<uint64_t> : 0;
}

// Returns the largest, or smallest, lane of each of four vectors.
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
// For 16-bit lanes, in the lower half of the result.
PLUMB_AVX2_INLINE __m128i Max16Of4(const __m256i* v) {
  const __m256i a =
      _mm256_max_epu16(_mm256_unpacklo_epi16(v[0], v[1]), _mm256_unpackhi_epi16(v[0], v[1]));
  const __m256i b =
      _mm256_max_epu16(_mm256_unpacklo_epi16(v[2], v[3]), _mm256_unpackhi_epi16(v[2], v[3]));
  const __m256i all = _mm256_max_epu16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const __m128i x = _mm_max_epu16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  return _mm_max_epu16(x, _mm_unpackhi_epi64(x, x));
}
PLUMB_AVX2_INLINE __m128i Min16Of4(const __m256i* v) {
  const __m256i a =
      _mm256_min_epu16(_mm256_unpacklo_epi16(v[0], v[1]), _mm256_unpackhi_epi16(v[0], v[1]));
  const __m256i b =
      _mm256_min_epu16(_mm256_unpacklo_epi16(v[2], v[3]), _mm256_unpackhi_epi16(v[2], v[3]));
  const __m256i all = _mm256_min_epu16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const __m128i x = _mm_min_epu16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  return _mm_min_epu16(x, _mm_unpackhi_epi64(x, x));
}

PLUMB_AVX2 void Avx2Loops::Scan(const uint32_t* words, int n, ChunkScan<uint32_t>* scan) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  const __m256i minus_one = _mm256_set1_epi32(-1);
  __m256i most[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  __m128i least_of_all = _mm_set1_epi32(-1);
  for (int g = 0; g < n / kGroup; g += 4) {
    __m256i least[4];
    for (int k = 0; k < 4; ++k) {
      least[k] = minus_one;
      for (int i = 0; i < kGroup; i += 8) {
        const __m256i m = _mm256_and_si256(Load(words + (g + k) * kGroup + i), mask);
        most[i / 8 % 2] = _mm256_max_epu32(most[i / 8 % 2], m);
        least[k] = _mm256_min_epu32(least[k], _mm256_add_epi32(m, minus_one));
      }
    }
    const __m128i low = Min32Of4(least);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scan->least + g), low);
    least_of_all = _mm_min_epu32(least_of_all, low);
  }
  scan->most_of_all = Max32(_mm256_max_epu32(most[0], most[1]));
  scan->least_of_all = Min32(_mm256_set_m128i(least_of_all, least_of_all));
}

PLUMB_AVX2 void Avx2Loops::ScanMost(const uint32_t* words, int n, ChunkScan<uint32_t>* scan) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  for (int g = 0; g < n / kGroup; g += 4) {
    __m256i most[4];
    for (int k = 0; k < 4; ++k) {
      most[k] = _mm256_setzero_si256();
      for (int i = 0; i < kGroup; i += 8) {
        const __m256i word = Load(words + (g + k) * kGroup + i);
        most[k] = _mm256_max_epu32(most[k], _mm256_and_si256(word, mask));
      }
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scan->most + g), Max32Of4(most));
  }
}

// Words with a sign are negative numbers and smaller than 0; unsigned, they are larger.
PLUMB_AVX2 void Avx2Loops::ScanSigns(const uint32_t* words, int n, ChunkScan<uint32_t>* scan) {
  __m256i positive = _mm256_setzero_si256();
  __m256i negative = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 8) {
    const __m256i word = Load(words + i);
    positive = _mm256_max_epi32(positive, word);
    negative = _mm256_max_epu32(negative, word);
  }
  const uint32_t high = Max32(negative);
  scan->positive = Max32(positive);
  scan->negative = high >> 31 != 0 ? high & kMagnitudeMask<uint32_t> : 0;
}

PLUMB_AVX2 void Avx2Loops::Scan(const uint16_t* words, int n, ChunkScan<uint16_t>* scan) {
  const __m256i mask = _mm256_set1_epi16(0x7fff);
  const __m256i minus_one = _mm256_set1_epi16(-1);
  __m256i most = _mm256_setzero_si256();
  __m128i least_of_all = _mm_set1_epi16(-1);
  for (int g = 0; g < n / kGroup; g += 4) {
    __m256i least[4];
    for (int k = 0; k < 4; ++k) {
      const __m256i a = _mm256_and_si256(Load(words + (g + k) * kGroup), mask);
      const __m256i b = _mm256_and_si256(Load(words + (g + k) * kGroup + 16), mask);
      most = _mm256_max_epu16(most, _mm256_max_epu16(a, b));
      least[k] = _mm256_min_epu16(_mm256_add_epi16(a, minus_one), _mm256_add_epi16(b, minus_one));
    }
    const __m128i low = Min16Of4(least);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(scan->least + g), low);
    least_of_all = _mm_min_epu16(least_of_all, low);
  }
  scan->most_of_all = Max16(most);
  scan->least_of_all = Min16(_mm256_set_m128i(least_of_all, least_of_all));
}

PLUMB_AVX2 void Avx2Loops::ScanMost(const uint16_t* words, int n, ChunkScan<uint16_t>* scan) {
  const __m256i mask = _mm256_set1_epi16(0x7fff);
  for (int g = 0; g < n / kGroup; g += 4) {
    __m256i most[4];
    for (int k = 0; k < 4; ++k) {
      const __m256i a = _mm256_and_si256(Load(words + (g + k) * kGroup), mask);
      const __m256i b = _mm256_and_si256(Load(words + (g + k) * kGroup + 16), mask);
      most[k] = _mm256_max_epu16(a, b);
    }
    _mm_storel_epi64(reinterpret_cast<__m128i*>(scan->most + g), Max16Of4(most));
  }
}

PLUMB_AVX2 void Avx2Loops::ScanSigns(const uint16_t* words, int n, ChunkScan<uint16_t>* scan) {
  __m256i positive = _mm256_setzero_si256();
  __m256i negative = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 16) {
    const __m256i word = Load(words + i);
    positive = _mm256_max_epi16(positive, word);
    negative = _mm256_max_epu16(negative, word);
  }
  const uint16_t high = Max16(negative);
  scan->positive = Max16(positive);
  scan->negative = high >> 15 != 0 ? high & kMagnitudeMask<uint16_t> : uint16_t{0};
}

}  // namespace plumbline

#endif
