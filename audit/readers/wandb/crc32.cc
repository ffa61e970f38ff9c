// Folding and Barrett's reduction, reflected: V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel, 2009. Constants are powers of x modulo the
// polynomial 0x104c11db7, bits reversed: x^(4*128+32), x^(4*128-32), x^(128+32), x^(128-32), x^64.
#include "audit/readers/wandb/crc32.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <smmintrin.h>
#include <wmmintrin.h>
#endif

namespace plumbline::audit {
namespace {

constexpr uint32_t kReversed = 0xedb88320u;
using Crc32Tables = std::array<std::array<uint32_t, 256>, 8>;

// [n][b]: the effect of byte b followed by n zero bytes.
constexpr Crc32Tables MakeCrc32Tables() {
  Crc32Tables t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kReversed : 0u);
    t[0][b] = crc;
  }
  for (size_t n = 1; n < t.size(); ++n) {
    for (size_t b = 0; b < 256; ++b) t[n][b] = (t[n - 1][b] >> 8) ^ t[0][t[n - 1][b] & 0xffu];
  }
  return t;
}

constexpr Crc32Tables kCrc32Tables = MakeCrc32Tables();

#if defined(__x86_64__)
constexpr size_t kLeastFolded = 64;  // bytes
#define PLUMB_CLMUL __attribute__((target("pclmul,sse4.1")))

PLUMB_CLMUL inline __m128i Load(const unsigned char* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// `x`, moved on by what `k` stands for, and what comes there.
PLUMB_CLMUL inline __m128i Fold(__m128i x, __m128i k, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(x, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(x, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// 128 bits to 32.
PLUMB_CLMUL inline uint32_t Reduce(__m128i x) {
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  const __m128i word = _mm_setr_epi32(-1, 0, -1, 0);
  x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_128, 0x10));
  const __m128i upper = _mm_srli_si128(x, 4);
  x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, word), by_64, 0x00), upper);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, word), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, word), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(x, quotient), 1));
}

// 64 bytes or more: four lanes of 16, folded into one; the rest by tables.
PLUMB_CLMUL uint32_t Folded(const void* data, size_t size, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  __m128i x[4] = {Load(p), Load(p + 16), Load(p + 32), Load(p + 48)};
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(static_cast<int>(~crc)));
  for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
    for (int i = 0; i < 4; ++i) x[i] = Fold(x[i], by_512, Load(p + 16 * i));
  }
  for (int i = 1; i < 4; ++i) x[0] = Fold(x[0], by_128, x[i]);
  for (; size >= 16; p += 16, size -= 16) x[0] = Fold(x[0], by_128, Load(p));
  return internal::Crc32Table(p, size, ~Reduce(x[0]));
}

bool HasMultiplication() {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#undef PLUMB_CLMUL
#endif

}  // namespace

namespace internal {

uint32_t Crc32Table(const void* data, size_t size, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  const Crc32Tables& t = kCrc32Tables;
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= crc;
    crc = t[7][low & 0xff] ^ t[6][(low >> 8) & 0xff] ^ t[5][(low >> 16) & 0xff] ^ t[4][low >> 24] ^
          t[3][high & 0xff] ^ t[2][(high >> 8) & 0xff] ^ t[1][(high >> 16) & 0xff] ^
          t[0][high >> 24];
  }
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xffu];
  return ~crc;
}

}  // namespace internal

uint32_t Crc32(const void* data, size_t size, uint32_t crc) {
#if defined(__x86_64__)
  static const bool multiplies = HasMultiplication();
  if (multiplies && size >= kLeastFolded) return Folded(data, size, crc);
#endif
  return internal::Crc32Table(data, size, crc);
}

}  // namespace plumbline::audit
