// An archive reads back what it wrote: every kind of value, shared objects, versions and sections.
#include "base/archive.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/base/archive_case.h"

namespace plumbline {
namespace {

// In pieces, it writes the same bytes, and holds at most a piece and a section.
TEST(Archive, PiecesAreTheSameBytes) {
  Random random(3);
  std::vector<Everything> all;
  for (int i = 0; i < 300; ++i) all.push_back(random.Next());
  const auto write = [&](Archive& archive) {
    archive.Version(1);
    for (Everything& e : all) {
      archive.Section("outer", [&] {
        archive.Section("inner", [&] { archive(e); });
        archive.Section("again", [&] { archive(e); });
      });
    }
    archive(all[0]);
  };
  Archive whole;
  write(whole);
  const size_t written = whole.written();
  const std::string bytes = whole.Take();
  std::string pieces;
  size_t count = 0, largest = 0;
  constexpr size_t kPiece = 10'000;
  Archive archive(
      [&](std::string_view piece) {
        pieces.append(piece);
        largest = std::max(largest, piece.size());
        ++count;
      },
      kPiece);
  write(archive);
  archive.Drain();
  EXPECT_EQ(archive.written(), written);
  EXPECT_EQ(pieces, bytes);
  EXPECT_GT(count, bytes.size() / kPiece / 4);
  EXPECT_LT(largest, 2 * kPiece + 10'000);
}

TEST(Archive, WhatIsReadIsWhatWasWritten) {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    Everything e = random.Next();
    const std::string bytes = Written(e);
    Everything back = random.Next();  // overwritten, whatever it holds
    Archive a{bytes};
    a(back);
    a.End();
    ASSERT_TRUE(a.ok()) << a.error();
    EXPECT_EQ(Written(back), bytes);
    EXPECT_EQ(back.u32, e.u32);
    EXPECT_EQ(back.ld, e.ld);
    EXPECT_EQ(back.colour, e.colour);
    EXPECT_EQ(back.tuple, e.tuple);
    EXPECT_EQ(back.bits, e.bits);
    EXPECT_EQ(back.leaves, e.leaves);
    EXPECT_EQ(back.list, e.list);
    EXPECT_EQ(back.map, e.map);
    EXPECT_EQ(back.set, e.set);
    EXPECT_EQ(back.unordered_map, e.unordered_map);
    EXPECT_EQ(back.unordered_set, e.unordered_set);
    EXPECT_EQ(back.optional, e.optional);
    ASSERT_EQ(back.shared.size(), 4u);
    EXPECT_EQ(*back.shared[0], *e.shared[0]);
    EXPECT_EQ(back.shared[0], back.shared[3]);  // one object
    EXPECT_EQ(back.shared[1], nullptr);
    EXPECT_NE(back.shared[2], back.shared[0]);
  }
}

TEST(Archive, NumbersLieLittleEndianAtTheirOwnWidth) {
  Archive a;
  uint16_t x = 0x0102;
  std::string text = "ab";
  bool yes = true;
  a(x, text, yes);
  EXPECT_EQ(a.Take(), std::string("\x02\x01\x02\0\0\0\0\0\0\0ab\x01", 13));
}

TEST(Archive, NanKeepsItsPayloadAndZeroItsSign) {
  const uint64_t payload = 0x7ff4dead'beef1234;
  double nan = std::bit_cast<double>(payload);
  double zero = -0.0;
  long double infinity = -std::numeric_limits<long double>::infinity();
  Archive a;
  a(nan, zero, infinity);
  const std::string bytes = a.Take();
  nan = zero = 1;
  infinity = 1;
  Archive b{bytes};
  b(nan, zero, infinity);
  EXPECT_EQ(std::bit_cast<uint64_t>(nan), payload);
  EXPECT_TRUE(std::signbit(zero));
  EXPECT_TRUE(std::isinf(infinity) && infinity < 0);
}

TEST(Archive, EqualSetsGiveEqualBytesWhateverTheirOrder) {
  std::unordered_set<uint64_t> one, other;
  for (uint64_t i = 0; i < 1000; ++i) one.insert(i * 7919);
  other.reserve(4096);
  for (uint64_t i = 1000; i > 0; --i) other.insert((i - 1) * 7919);
  Archive a, b;
  a(one);
  b(other);
  EXPECT_EQ(a.Take(), b.Take());
}

TEST(Archive, ARingOfObjectsComesBackAsARing) {
  auto node = std::make_shared<Node>();
  node->next = std::make_shared<Node>();
  node->next->next = node;
  Archive a;
  a(node);
  const std::string bytes = a.Take();
  std::shared_ptr<Node> back;
  Archive b{bytes};
  b(back);
  ASSERT_TRUE(b.ok()) << b.error();
  ASSERT_NE(back, nullptr);
  EXPECT_NE(back->next, back);
  EXPECT_EQ(back->next->next, back);
  back->next->next.reset();
  node->next->next.reset();
}

TEST(Archive, AnObjectAndItsFirstMemberAreTwo) {
  struct Outer {
    Leaf leaf;
    void Persist(Archive& a) { a(leaf); }
  };
  auto outer = std::make_shared<Outer>();
  outer->leaf.number = 7;
  std::shared_ptr<Leaf> inner(outer, &outer->leaf);
  Archive a;
  a(outer, inner);
  const std::string bytes = a.Take();
  std::shared_ptr<Outer> outer_back;
  std::shared_ptr<Leaf> inner_back;
  Archive b{bytes};
  b(outer_back, inner_back);
  ASSERT_TRUE(b.ok()) << b.error();
  EXPECT_EQ(outer_back->leaf.number, 7);
  EXPECT_EQ(inner_back->number, 7);
}

TEST(Archive, ValuesThatNeedMakingAreMadeByTheirKey) {
  struct Needy {
    explicit Needy(int given) : from_key(given) {}
    int from_key;
    int state = 0;
    void Persist(Archive& a) { a(state); }
  };
  std::map<int, Needy> map;
  map.emplace(3, 30).first->second.state = 5;
  const auto make = [](int key) { return Needy(10 * key); };
  Archive a;
  a.MapOf(map, make);
  const std::string bytes = a.Take();
  map.clear();
  Archive b{bytes};
  b.MapOf(map, make);
  ASSERT_EQ(map.size(), 1u);
  EXPECT_EQ(map.at(3).from_key, 30);
  EXPECT_EQ(map.at(3).state, 5);
}

TEST(Archive, AnotherVersionIsRefused) {
  Archive a;
  a.Version(4);
  const std::string bytes = a.Take();
  Archive same{bytes};
  EXPECT_EQ(same.Version(4), 4u);
  Archive newer{bytes};
  EXPECT_EQ(newer.Version(5), 4u);
  EXPECT_TRUE(newer.ok());
  Archive older{bytes};
  older.Version(3);
  EXPECT_EQ(older.error(), "at byte 4: expected version 1 to 3, found 4");
  Archive forgotten{bytes};
  forgotten.Version(6, 5);
  EXPECT_FALSE(forgotten.ok());
}

TEST(Archive, ASectionIsReadWholeUnderItsName) {
  Archive a;
  int x = 1, y = 2;
  a.Section("outer", [&] {
    a(x);
    a.Section("inner", [&] { a(x, y); });
  });
  a(y);
  const std::string bytes = a.Take();
  const auto read = [&](const char* inner, bool both) {
    Archive b{bytes};
    b.Section("outer", [&] {
      b(x);
      b.Section(inner, [&] {
        b(x);
        if (both) b(y);
      });
    });
    b(y);
    b.End();
    return b.error();
  };
  EXPECT_EQ(read("inner", true), "");
  EXPECT_EQ(read("other", true), "at byte 38 of outer: expected 'other', found another");
  EXPECT_EQ(read("inner", false),
            "at byte 50 of outer, inner: expected the end, found 4 bytes more");
  Archive greedy{bytes};
  int64_t wide = 0;
  greedy.Section("outer", [&] { greedy(wide, wide, wide, wide, wide); });
  EXPECT_FALSE(greedy.ok());
}

}  // namespace
}  // namespace plumbline
