#include "audit/readers/wandb/crc32.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace plumbline::audit {
namespace {

uint32_t BitByBit(std::string_view s, uint32_t crc) {
  crc = ~crc;
  for (const char c : s) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

TEST(Crc32, GivesTheKnownVectors) {
  EXPECT_EQ(Crc32("123456789", 9), 0xcbf43926u);
  EXPECT_EQ(Crc32("", 0), 0u);
  const std::string zeros(32, '\0');
  EXPECT_EQ(Crc32(zeros.data(), zeros.size()), 0x190a55adu);
}

TEST(Crc32, IsWhatBitsGiveAtEveryLengthAndPlace) {
  std::mt19937 random(1);
  std::string bytes(700, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t length = 0; length <= 640; ++length) {
    const std::string_view part = std::string_view(bytes).substr(length % 17, length);
    for (const uint32_t before : {0u, 1u, 0xffffffffu, 0xcbf43926u}) {
      const uint32_t crc = BitByBit(part, before);
      ASSERT_EQ(Crc32(part.data(), length, before), crc) << length;
      ASSERT_EQ(internal::Crc32Table(part.data(), length, before), crc) << length;
    }
  }
}

TEST(Crc32, GoesOnWhereItStopped) {
  std::string bytes(1000, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i);
  const uint32_t whole = Crc32(bytes.data(), bytes.size());
  for (size_t cut = 0; cut <= bytes.size(); cut += 7)
    EXPECT_EQ(Crc32(bytes.data() + cut, bytes.size() - cut, Crc32(bytes.data(), cut)), whole);
}

}  // namespace
}  // namespace plumbline::audit
