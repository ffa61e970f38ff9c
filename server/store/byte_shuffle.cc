#include "server/store/byte_shuffle.h"

#include <array>
#include <cstring>

namespace plumbline::server {
namespace {

using EightWords = std::array<uint64_t, 8>;

// Exchanges the bits of a under (mask << shift) with the bits of b under mask.
inline void Exchange(uint64_t& a, uint64_t& b, int shift, uint64_t mask) {
  const uint64_t t = ((a >> shift) ^ b) & mask;
  a ^= t << shift;
  b ^= t;
}

// Transposes eight words as an 8 x 8 matrix of bytes: halves, quarters, eighths.
inline void Transpose(EightWords& w) {
  for (size_t i = 0; i < 4; ++i) Exchange(w[i], w[i + 4], 32, 0x00000000FFFFFFFFull);
  for (size_t i : {0u, 1u, 4u, 5u}) Exchange(w[i], w[i + 2], 16, 0x0000FFFF0000FFFFull);
  for (size_t i : {0u, 2u, 4u, 6u}) Exchange(w[i], w[i + 1], 8, 0x00FF00FF00FF00FFull);
}

}  // namespace

void ShuffleBytes(const void* words, size_t count, uint8_t* out) {
  const auto* values = static_cast<const uint8_t*>(words);
  EightWords w;
  const size_t whole = count / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    std::memcpy(w.data(), values + 8 * i, sizeof(w));
    Transpose(w);
    for (size_t plane = 0; plane < 8; ++plane) std::memcpy(out + plane * count + i, &w[plane], 8);
  }
  for (size_t i = whole; i < count; ++i) {
    uint8_t bytes[8];
    std::memcpy(bytes, values + 8 * i, 8);
    for (size_t plane = 0; plane < 8; ++plane) out[plane * count + i] = bytes[plane];
  }
}

void UnshuffleBytes(const uint8_t* in, size_t count, void* words) {
  auto* values = static_cast<uint8_t*>(words);
  EightWords w;
  const size_t whole = count / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    for (size_t plane = 0; plane < 8; ++plane) std::memcpy(&w[plane], in + plane * count + i, 8);
    Transpose(w);
    std::memcpy(values + 8 * i, w.data(), sizeof(w));
  }
  for (size_t i = whole; i < count; ++i) {
    uint8_t bytes[8];
    for (size_t plane = 0; plane < 8; ++plane) bytes[plane] = in[plane * count + i];
    std::memcpy(values + 8 * i, bytes, 8);
  }
}

}  // namespace plumbline::server
