// SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012): a keyed 64-bit hash.
// Without the key the hash of a value cannot be computed, and a hash cannot be inverted.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace plumbline::transport {

struct SipKey {
  uint64_t k0 = 0, k1 = 0;
};

namespace internal {

class SipState {
 public:
  explicit SipState(const SipKey& key)
      : v0_(key.k0 ^ 0x736f6d6570736575u),
        v1_(key.k1 ^ 0x646f72616e646f6du),
        v2_(key.k0 ^ 0x6c7967656e657261u),
        v3_(key.k1 ^ 0x7465646279746573u) {}

  void Word(uint64_t m) {
    v3_ ^= m;
    Round();
    Round();
    v0_ ^= m;
  }
  uint64_t Finish() {
    v2_ ^= 0xff;
    for (int i = 0; i < 4; ++i) Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void Round() {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }
  uint64_t v0_, v1_, v2_, v3_;
};

}  // namespace internal

// Returns the hash of bytes. An integer is hashed as its eight bytes, little-endian.
inline uint64_t SipHash(const SipKey& key, std::string_view bytes) {
  internal::SipState state(key);
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    state.Word(word);
  }
  uint64_t last = static_cast<uint64_t>(bytes.size()) << 56;
  for (size_t i = at; i < bytes.size(); ++i)
    last |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * (i - at));
  state.Word(last);
  return state.Finish();
}

inline uint64_t SipHash(const SipKey& key, uint64_t value) {
  internal::SipState state(key);
  state.Word(value);
  state.Word(uint64_t{8} << 56);
  return state.Finish();
}

}  // namespace plumbline::transport
