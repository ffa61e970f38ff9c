#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/crc32c_internal.h"

namespace plumbline {
namespace {

uint32_t BitByBit(const std::string& s) {
  uint32_t crc = ~0u;
  for (unsigned char c : s) {
    crc ^= c;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

// RFC 3720, B.4, and the catalogue's check value.
TEST(Crc32c, GivesTheKnownVectors) {
  std::string rising(32, '\0');
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<char>(i);
  const std::string falling(rising.rbegin(), rising.rend());
  const std::pair<std::string, uint32_t> vectors[] = {
      {"123456789", 0xe3069283u},
      {std::string(32, '\0'), 0x8a9136aau},
      {std::string(32, '\xff'), 0x62a8ab43u},
      {rising, 0x46dd794eu},
      {falling, 0x113fdb5cu},
      {"", 0u},
  };
  for (const auto& [text, crc] : vectors) {
    EXPECT_EQ(Crc32c(text.data(), text.size()), crc);
    EXPECT_EQ(internal::Crc32cTable(text.data(), text.size(), 0), crc);
  }
}

TEST(Crc32c, FormsAgreeAtEveryLengthAlignmentAndSplit) {
  std::mt19937 random(5);
  std::string data(300, '\0');
  for (char& c : data) c = static_cast<char>(random());
  for (size_t start = 0; start < 9; ++start) {
    for (size_t size = 0; size + start <= 200; ++size) {
      const uint32_t expected = BitByBit(data.substr(start, size));
      ASSERT_EQ(Crc32c(data.data() + start, size), expected);
      ASSERT_EQ(internal::Crc32cTable(data.data() + start, size, 0), expected);
      const size_t cut = size / 3;
      const uint32_t first = Crc32c(data.data() + start, cut);
      ASSERT_EQ(Crc32c(data.data() + start + cut, size - cut, first), expected);
    }
  }
}

}  // namespace
}  // namespace plumbline
