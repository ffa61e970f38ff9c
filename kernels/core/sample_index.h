// Selects the sampled elements of a tensor by a keyed permutation of its indices. Every rank, and
// every micro-batch of a step, computes the same ones from (run, step, layer, op) without
// communication. The first m values are a draw of m elements without replacement.
//
// The meaning of dumps and live evidence depends on both functions, so their values never change.
// Header only; SampleIndex also runs on devices. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace plumbline {

// The largest number of samples in one piece of evidence.
inline constexpr uint32_t kMaxSamples = 4096;

namespace internal {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits.
PLUMB_HD constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t Fnv1a(uint64_t state, uint64_t byte) {
  return (state ^ byte) * 0x100000001b3ull;
}

constexpr uint64_t HashText(uint64_t state, std::string_view text) {
  for (const char c : text) state = Fnv1a(state, static_cast<unsigned char>(c));
  for (int i = 0; i < 8; ++i) state = Fnv1a(state, (text.size() >> (8 * i)) & 0xff);
  return state;
}

}  // namespace internal

// Returns the key of one site in one step: FNV-1a over the texts, each followed by its length, and
// the step, then mixed. Equal on every host.
constexpr uint64_t SampleKey(std::string_view run, int64_t step, std::string_view layer,
                             std::string_view op) {
  uint64_t state = 0xcbf29ce484222325ull;
  state = internal::HashText(state, run);
  for (int i = 0; i < 8; ++i) {
    state = internal::Fnv1a(state, (static_cast<uint64_t>(step) >> (8 * i)) & 0xff);
  }
  state = internal::HashText(state, layer);
  state = internal::HashText(state, op);
  return internal::Mix64(state);
}

// Returns element i of the permutation of [0, count) of `key`, for i < count; otherwise i. A
// Feistel network of 8 rounds over the least power of two >= count (at least 2^6), repeated until
// the result is below `count` (Black and Rogaway 2002): fewer than two repetitions on average above
// 2^6.
PLUMB_HD constexpr uint64_t SampleIndex(uint64_t key, uint64_t count, uint64_t i) {
  if (i >= count) return i;
  int bits = 6;
  while (bits < 64 && (count - 1) >> bits != 0) ++bits;
  const int high_bits = bits / 2;
  const int low_bits = bits - high_bits;
  const uint64_t high_mask = (uint64_t{1} << high_bits) - 1;
  const uint64_t low_mask = (uint64_t{1} << low_bits) - 1;
  uint64_t x = i;
  do {
    uint64_t high = x >> low_bits;
    uint64_t low = x & low_mask;
    for (uint64_t round = 0; round < 8; round += 2) {
      high ^= internal::Mix64(key + (2 * round + 1) * 0x9e3779b97f4a7c15ull + low) & high_mask;
      low ^= internal::Mix64(key + (2 * round + 3) * 0x9e3779b97f4a7c15ull + ~high) & low_mask;
    }
    x = high << low_bits | low;
  } while (x >= count);
  return x;
}

}  // namespace plumbline
