#include "base/archive.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace plumbline {
namespace {

enum class Colour : uint8_t { kRed, kBlue = 200 };

struct Leaf {
  int64_t number = 0;
  std::string name;
  bool operator==(const Leaf&) const = default;
  void Persist(Archive& a) { a(number, name); }
};

struct Plain {
  int32_t x = 0;
  bool operator==(const Plain&) const = default;
};
void Persist(Archive& a, Plain& plain) { a(plain.x); }

// One of everything that an archive understands.
struct Everything {
  uint8_t u8 = 0;
  int16_t i16 = 0;
  uint32_t u32 = 0;
  int64_t i64 = 0;
  float f = 0;
  double d = 0;
  long double ld = 0;
  bool b = false;
  Colour colour = Colour::kRed;
  std::string text;
  std::pair<int, std::string> pair;
  std::tuple<bool, double, Leaf> tuple;
  std::array<uint64_t, 3> array{};
  uint16_t plain_array[2] = {};
  std::vector<double> numbers;
  std::vector<bool> bits;
  std::vector<Leaf> leaves;
  std::deque<int> deque;
  std::list<std::string> list;
  std::map<std::pair<int, std::string>, std::vector<int>> map;
  std::set<std::string> set;
  std::unordered_map<int, std::string> unordered_map;
  std::unordered_set<uint64_t> unordered_set;
  std::optional<Leaf> optional;
  std::unique_ptr<Leaf> unique;
  std::vector<std::shared_ptr<const Leaf>> shared;
  Plain plain;

  void Persist(Archive& a) {
    a.Version(3, 3);
    a(u8, i16, u32, i64, f, d, ld, b, colour, text, pair, tuple, array, plain_array);
    a.Section("containers", [&] { a(numbers, bits, leaves, deque, list, map, set); });
    a(unordered_map, unordered_set, optional, unique, shared, plain);
  }
};

std::string Written(Everything& e) {
  Archive a;
  a(e);
  return a.Take();
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t n) { return engine_() % n; }
  uint64_t Bits() { return engine_(); }
  std::string Text() {
    std::string text(Below(12), 0);
    for (char& c : text) c = static_cast<char>(Below(256));
    return text;
  }
  Leaf NewLeaf() { return {static_cast<int64_t>(Bits()), Text()}; }

  Everything Next() {
    Everything e;
    e.u8 = static_cast<uint8_t>(Bits());
    e.i16 = static_cast<int16_t>(Bits());
    e.u32 = static_cast<uint32_t>(Bits());
    e.i64 = static_cast<int64_t>(Bits());
    e.f = std::bit_cast<float>(static_cast<uint32_t>(Bits()));
    e.d = std::bit_cast<double>(Bits());
    e.ld = std::ldexp(static_cast<long double>(Bits()), static_cast<int>(Below(9000)) - 4500);
    e.b = Below(2) == 1;
    e.colour = Below(2) == 1 ? Colour::kBlue : Colour::kRed;
    e.text = Text();
    e.pair = {static_cast<int>(Below(100)), Text()};
    e.tuple = {Below(2) == 1, 1.5, NewLeaf()};
    for (auto& x : e.array) x = Bits();
    e.plain_array[1] = static_cast<uint16_t>(Bits());
    for (uint64_t n = Below(4); n > 0; --n) {
      e.numbers.push_back(std::bit_cast<double>(Bits()));
      e.leaves.push_back(NewLeaf());
      e.deque.push_back(static_cast<int>(Bits()));
      e.list.push_back(Text());
      e.map[{static_cast<int>(Below(3)), Text()}] = {1, static_cast<int>(Below(9))};
      e.set.insert(Text());
      e.unordered_map[static_cast<int>(Below(1000))] = Text();
      e.unordered_set.insert(Bits());
    }
    for (uint64_t n = Below(20); n > 0; --n) e.bits.push_back(Below(2) == 1);
    if (Below(2) == 1) e.optional = NewLeaf();
    if (Below(2) == 1) e.unique = std::make_unique<Leaf>(NewLeaf());
    const auto shared = std::make_shared<const Leaf>(NewLeaf());
    e.shared = {shared, nullptr, std::make_shared<const Leaf>(NewLeaf()), shared};
    return e;
  }

 private:
  std::mt19937_64 engine_;
};

TEST(Archive, WhatIsReadIsWhatWasWritten) {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    Everything e = random.Next();
    const std::string bytes = Written(e);
    Everything back = random.Next();  // is overwritten, whatever it held
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
    EXPECT_EQ(back.shared[0], back.shared[3]);  // one object again
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

struct Node {
  std::shared_ptr<Node> next;
  void Persist(Archive& a) { a(next); }
};

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

TEST(Archive, AnObjectOfAnotherTypeIsRefused) {
  auto leaf = std::make_shared<Leaf>();
  auto node = std::make_shared<Node>();
  Archive a;
  a(leaf, node);
  std::string bytes = a.Take();
  bytes[bytes.size() - 16] = 1;  // the node's place: the leaf's
  Archive b{bytes};
  b(leaf, node);
  EXPECT_EQ(b.error(), "at byte 32: expected an object of this type");
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

TEST(Archive, EveryTruncationIsNoticedAndSaysWhere) {
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
      // Large counts and single bits are what breaks readers.
      bytes[at] =
          static_cast<char>(random.Below(3) == 0 ? 0xff : bytes[at] ^ (1 << random.Below(8)));
    }
    Everything back;
    Archive a{bytes};
    a(back);
    a.End();
    // Where it reads, it reads as something that writes the same.
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
  std::vector<std::pair<int, int>> pairs = {{2, 0}, {1, 0}};  // lies as a map does
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
