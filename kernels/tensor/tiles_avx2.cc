// Rounds of tensor/sum_order.h with vectors: a thread's vector of 16 bytes becomes one of 256 bits
// when widened, and threads' places are added in parallel.
#include "kernels/tensor/loops_avx2.h"

#if defined(__x86_64__)

#include "kernels/core/avx2_lanes.h"

namespace plumbline {
namespace {

PLUMB_AVX2_INLINE __m256 Eight(BF16Values, const std::byte* from) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
}
PLUMB_AVX2_INLINE __m256 Eight(F16Values, const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Sums of values, magnitudes and squares: of a thread's places, or of one thread per lane.
struct Eights {
  __m256 sum;
  __m256 magnitudes;
  __m256 squares;
};

template <typename Values>
PLUMB_AVX2_INLINE Eights Places(const std::byte* const* blocks, size_t at) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  const __m256 a = Eight(Values{}, blocks[0] + at);
  const __m256 b = Eight(Values{}, blocks[1] + at);
  const __m256 c = Eight(Values{}, blocks[2] + at);
  const __m256 d = Eight(Values{}, blocks[3] + at);
  return {_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)),
          _mm256_add_ps(_mm256_add_ps(_mm256_and_ps(a, magnitude), _mm256_and_ps(b, magnitude)),
                        _mm256_add_ps(_mm256_and_ps(c, magnitude), _mm256_and_ps(d, magnitude))),
          _mm256_fmadd_ps(d, d, _mm256_fmadd_ps(c, c, _mm256_fmadd_ps(b, b, _mm256_mul_ps(a, a))))};
}
PLUMB_AVX2_INLINE Eights Joined(const Eights& a, const Eights& b) {
  return {_mm256_hadd_ps(a.sum, b.sum), _mm256_hadd_ps(a.magnitudes, b.magnitudes),
          _mm256_hadd_ps(a.squares, b.squares)};
}

// Adds the sums of four threads. The halves of each thread's places are in the halves of the
// vectors.
template <typename Values>
PLUMB_AVX2_INLINE Eights FourThreads(const std::byte* const* blocks, size_t at) {
  return Joined(Joined(Places<Values>(blocks, at), Places<Values>(blocks, at + 16)),
                Joined(Places<Values>(blocks, at + 32), Places<Values>(blocks, at + 48)));
}

PLUMB_AVX2_INLINE void AddLanes(__m256 a, __m256 b, double* lanes) {
  const __m256 all =
      _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(all));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1));
  _mm256_storeu_pd(lanes, _mm256_add_pd(_mm256_loadu_pd(lanes), low));
  _mm256_storeu_pd(lanes + 4, _mm256_add_pd(_mm256_loadu_pd(lanes + 4), high));
}

template <typename Values>
PLUMB_AVX2_INLINE void AddRound16(const std::byte* const* blocks, int threads, TileLanes* lanes) {
  for (int t = 0; t < threads; t += 8) {
    const size_t at = static_cast<size_t>(t) * kSumVectorBytes;
    const Eights a = FourThreads<Values>(blocks, at);
    const Eights b = FourThreads<Values>(blocks, at + 64);
    AddLanes(a.sum, b.sum, lanes->sum + t);
    AddLanes(a.magnitudes, b.magnitudes, lanes->magnitudes + t);
    AddLanes(a.squares, b.squares, lanes->squares + t);
  }
}

struct Fours {
  __m256d sum;
  __m256d magnitudes;
  __m256d squares;
};

PLUMB_AVX2_INLINE __m256d Four(const std::byte* from) {
  return _mm256_cvtps_pd(_mm_loadu_ps(reinterpret_cast<const float*>(from)));
}
PLUMB_AVX2_INLINE Fours Places(const std::byte* const* blocks, size_t at) {
  const __m256d magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7fffffffffffffff));
  const __m256d a = Four(blocks[0] + at);
  const __m256d b = Four(blocks[1] + at);
  const __m256d c = Four(blocks[2] + at);
  const __m256d d = Four(blocks[3] + at);
  return {_mm256_add_pd(_mm256_add_pd(a, b), _mm256_add_pd(c, d)),
          _mm256_add_pd(_mm256_add_pd(_mm256_and_pd(a, magnitude), _mm256_and_pd(b, magnitude)),
                        _mm256_add_pd(_mm256_and_pd(c, magnitude), _mm256_and_pd(d, magnitude))),
          _mm256_fmadd_pd(d, d, _mm256_fmadd_pd(c, c, _mm256_fmadd_pd(b, b, _mm256_mul_pd(a, a))))};
}
PLUMB_AVX2_INLINE void AddLanes(__m256d a, __m256d b, __m256d c, __m256d d, double* lanes) {
  const __m256d ab = _mm256_hadd_pd(a, b);
  const __m256d cd = _mm256_hadd_pd(c, d);
  const __m256d all =
      _mm256_add_pd(_mm256_permute2f128_pd(ab, cd, 0x20), _mm256_permute2f128_pd(ab, cd, 0x31));
  _mm256_storeu_pd(lanes, _mm256_add_pd(_mm256_loadu_pd(lanes), all));
}

}  // namespace

PLUMB_AVX2 void Avx2Loops::AddRound(BF16Values, const std::byte* const* blocks, int threads,
                                    TileLanes* lanes) {
  AddRound16<BF16Values>(blocks, threads, lanes);
}
PLUMB_AVX2 void Avx2Loops::AddRound(F16Values, const std::byte* const* blocks, int threads,
                                    TileLanes* lanes) {
  AddRound16<F16Values>(blocks, threads, lanes);
}
PLUMB_AVX2 void Avx2Loops::AddRound(F32Values, const std::byte* const* blocks, int threads,
                                    TileLanes* lanes) {
  for (int t = 0; t < threads; t += 4) {
    const size_t at = static_cast<size_t>(t) * kSumVectorBytes;
    const Fours a = Places(blocks, at);
    const Fours b = Places(blocks, at + 16);
    const Fours c = Places(blocks, at + 32);
    const Fours d = Places(blocks, at + 48);
    AddLanes(a.sum, b.sum, c.sum, d.sum, lanes->sum + t);
    AddLanes(a.magnitudes, b.magnitudes, c.magnitudes, d.magnitudes, lanes->magnitudes + t);
    AddLanes(a.squares, b.squares, c.squares, d.squares, lanes->squares + t);
  }
}

}  // namespace plumbline

#endif
