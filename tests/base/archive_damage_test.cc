// Bytes that no archive wrote: truncated, changed anywhere, or of another type. Reading them
// neither crashes nor allocates, and reports the offset of the first error.
#include <gtest/gtest.h>

#include "tests/base/archive_case.h"

namespace plumbline {
namespace {

TEST(Archive, AnObjectOfAnotherTypeIsRefused) {
  auto leaf = std::make_shared<Leaf>();
  auto node = std::make_shared<Node>();
  Archive a;
  a(leaf, node);
  std::string bytes = a.Take();
  bytes[bytes.size() - 16] = 1;  // the node's place: now the leaf's
  Archive b{bytes};
  b(leaf, node);
  EXPECT_EQ(b.error(), "at byte 32: expected an object of this type");
}

TEST(Archive, EveryTruncationIsNoticedAndStatesWhere) {
  Random random(2);
  Everything e = random.Next();
  const std::string bytes = Written(e);
  for (size_t size = 0; size < bytes.size(); ++size) {
    Everything back;
    Archive a{std::string_view(bytes).substr(0, size)};
    a(back);
    EXPECT_FALSE(a.ok()) << "cut at " << size;
    EXPECT_EQ(a.error().substr(0, 8), "at byte ");
  }
}

TEST(Archive, DamagedBytesNeitherCrashNorRead) {
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    Everything e = random.Next();
    std::string bytes = Written(e);
    for (uint64_t n = 1 + random.Below(3); n > 0; --n) {
      const size_t at = random.Below(bytes.size());
      // Large counts and single bits break readers most often.
      bytes[at] =
          static_cast<char>(random.Below(3) == 0 ? 0xff : bytes[at] ^ (1 << random.Below(8)));
    }
    Everything back;
    Archive a{bytes};
    a(back);
    a.End();
    // If it can be read, it is written as the same bytes.
    if (!a.ok()) continue;
    EXPECT_EQ(Written(back), bytes);
  }
}

TEST(Archive, AHugeCountAllocatesNothing) {
  std::string bytes(8, '\xff');
  bytes[7] = 0x0f;
  const auto refused = [&]<typename T>(T value) {
    Archive a{bytes};
    a(value);
    EXPECT_FALSE(a.ok());
  };
  refused(std::string());
  refused(std::vector<double>());
  refused(std::vector<bool>());
  refused(std::vector<Leaf>());
  refused(std::deque<int>());
  refused(std::map<int, int>());
  refused(std::set<int>());
  refused(std::unordered_set<int>());
  Archive a{bytes};
  std::vector<double> numbers;
  a(numbers);
  EXPECT_EQ(a.error(), "at byte 8: expected a count of at most 0, found 1152921504606846975");
}

TEST(Archive, KeysMustAscend) {
  std::vector<std::pair<int, int>> pairs = {{2, 0}, {1, 0}};  // has the layout of a map
  Archive a;
  a(pairs);
  const std::string bytes = a.Take();
  std::map<int, int> map;
  Archive b{bytes};
  b(map);
  EXPECT_EQ(b.error(), "at byte 20: expected an ascending key");
}

TEST(Archive, AFlagIsZeroOrOne) {
  bool flag = false;
  Archive a{std::string_view("\x02")};
  a(flag);
  EXPECT_EQ(a.error(), "at byte 1: expected 0 or 1, found 2");
}

TEST(Archive, WhatIsLeftIsNoticed) {
  Archive a{std::string_view("ab")};
  uint8_t byte = 0;
  a(byte);
  a.End();
  EXPECT_EQ(a.error(), "at byte 1: expected the end, found 1 bytes more");
}

TEST(Archive, NothingIsReadAfterTheFirstFault) {
  Archive a{std::string_view("\x05\x02zzzzzzzz")};
  uint8_t first = 0, third = 9;
  bool second = false;
  a(first, second, third);
  EXPECT_EQ(first, 5);
  EXPECT_EQ(third, 9);
  EXPECT_EQ(a.error(), "at byte 2: expected 0 or 1, found 2");
}

}  // namespace
}  // namespace plumbline
