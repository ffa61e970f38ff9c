// The digest of a tensor: sums modulo 2^64 of a keyed hash of each 8-byte word of its dense
// C-ordered bytes (little-endian; the last word is padded with zeros). A sum does not depend on the
// order, so threads and devices add their parts in any order.
//
// The hash is NH's product (Black et al., UMAC, 1999) made injective in each half: with word ^ key
// = (u, v) it is (u + 1)(v + 1) - 1 modulo 2^64, and neither factor exceeds 2^32, so changing one
// half always changes it. Keys are fixed pseudo-random numbers of the word's index. Digests are
// compared across hosts and releases: the definition never changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/core/sample_index.h"

namespace plumbline {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
};

struct DigestKey {
  uint64_t low;
  uint64_t high;
};

// A key is that of the word's place in its block of 256 words, xor that of the block.
inline constexpr int kDigestBlockWords = 256;
inline constexpr int kDigestBlockBytes = kDigestBlockWords * 8;

PLUMB_HD constexpr DigestKey DigestPlaceKey(uint64_t place) {
  return {internal::Mix64(0x243f6a8885a308d3ull + place * 0x9e3779b97f4a7c15ull),
          internal::Mix64(0x13198a2e03707344ull + place * 0x9e3779b97f4a7c15ull)};
}

PLUMB_HD constexpr DigestKey DigestBlockKey(uint64_t block) {
  return {internal::Mix64(0xa4093822299f31d0ull + block * 0x9e3779b97f4a7c15ull),
          internal::Mix64(0x082efa98ec4e6c89ull + block * 0x9e3779b97f4a7c15ull)};
}

PLUMB_HD constexpr uint64_t DigestWord(uint64_t word, uint64_t key) {
  const uint64_t t = word ^ key;
  const uint64_t u = t & 0xffffffffu;
  const uint64_t v = t >> 32;
  return u * v + u + v;
}

struct alignas(16) DigestTable {
  std::array<uint64_t, kDigestBlockWords> low;
  std::array<uint64_t, kDigestBlockWords> high;
};

constexpr DigestTable MakeDigestTable() {
  DigestTable table{};
  for (size_t i = 0; i < kDigestBlockWords; ++i) {
    const DigestKey key = DigestPlaceKey(i);
    table.low[i] = key.low;
    table.high[i] = key.high;
  }
  return table;
}

inline constexpr DigestTable kDigestTable = MakeDigestTable();

}  // namespace plumbline
