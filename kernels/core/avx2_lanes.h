// Loads and sums over the lanes of AVX2 vectors, for .cc files with AVX2 functions.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "base/avx2.h"

namespace plumbline {

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

inline constexpr uint64_t kTop64 = uint64_t{1} << 63;

PLUMB_AVX2_INLINE __m256i Larger64(__m256i a, __m256i b) {
  return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b));
}
PLUMB_AVX2_INLINE __m256i Smaller64(__m256i a, __m256i b) {
  return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}
// Returns the largest lane, as signed integers.
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
// Return sums of unsigned lanes of 32 and 16 bits.
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

}  // namespace plumbline
