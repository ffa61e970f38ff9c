#include "transport/siphash.h"

#include <gtest/gtest.h>

#include <string>

namespace plumbline::transport {
namespace {

// The key 00 01 .. 0f of the reference implementation's vectors.
constexpr SipKey kKey{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

std::string Counting(size_t n) {
  std::string bytes;
  for (size_t i = 0; i < n; ++i) bytes += static_cast<char>(i);
  return bytes;
}

// github.com/veorq/SipHash, vectors.h: vectors_sip64 of 0, 1, 7, 8, 15 and 63 bytes.
TEST(SipHash, GivesTheReferencesValues) {
  EXPECT_EQ(SipHash(kKey, Counting(0)), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(SipHash(kKey, Counting(1)), 0x74f839c593dc67fdu);
  EXPECT_EQ(SipHash(kKey, Counting(7)), 0xab0200f58b01d137u);
  EXPECT_EQ(SipHash(kKey, Counting(8)), 0x93f5f5799a932462u);
  EXPECT_EQ(SipHash(kKey, Counting(15)), 0xa129ca6149be45e5u);
  EXPECT_EQ(SipHash(kKey, Counting(63)), 0x958a324ceb064572u);
}

TEST(SipHash, AnIntegerIsItsEightBytes) {
  const uint64_t value = 0x0706050403020100u;
  EXPECT_EQ(SipHash(kKey, value), SipHash(kKey, Counting(8)));
  EXPECT_NE(SipHash(kKey, value), SipHash({kKey.k0, kKey.k1 + 1}, value));
}

}  // namespace
}  // namespace plumbline::transport
