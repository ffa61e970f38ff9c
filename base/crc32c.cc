#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "base/crc32c_internal.h"

namespace plumbline {
namespace {

// Reflected Castagnoli polynomial.
constexpr uint32_t kPolynomial = 0x82f63b78u;

// kTables[n][b]: the effect of byte b followed by n zero bytes, so that eight bytes are processed
// at once.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    t[0][b] = crc;
  }
  for (size_t n = 1; n < t.size(); ++n) {
    for (size_t b = 0; b < 256; ++b) t[n][b] = (t[n - 1][b] >> 8) ^ t[0][t[n - 1][b] & 0xffu];
  }
  return t;
}

constexpr Tables kTables = MakeTables();

uint32_t TableStep8(uint32_t crc, const unsigned char* p) {
  uint32_t low;
  uint32_t high;
  std::memcpy(&low, p, 4);
  std::memcpy(&high, p + 4, 4);
  low ^= crc;
  return kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^ kTables[5][(low >> 16) & 0xff] ^
         kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^ kTables[2][(high >> 8) & 0xff] ^
         kTables[1][(high >> 16) & 0xff] ^ kTables[0][high >> 24];
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Hardware(const void* data, size_t size, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t state = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto tail = static_cast<uint32_t>(state);
  for (; size > 0; --size, ++p) tail = _mm_crc32_u8(tail, *p);
  return ~tail;
}
#endif

using Function = uint32_t (*)(const void*, size_t, uint32_t);

Function Choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return Hardware;
#endif
  return internal::Crc32cTable;
}

}  // namespace

namespace internal {

uint32_t Crc32cTable(const void* data, size_t size, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) crc = TableStep8(crc, p);
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xffu];
  return ~crc;
}

}  // namespace internal

uint32_t Crc32c(const void* data, size_t size, uint32_t crc) {
  static const Function function = Choose();
  return function(data, size, crc);
}

}  // namespace plumbline
