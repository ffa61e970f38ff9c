// A struct with one of every type that an archive supports, for the archive's tests.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline {

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
inline void Persist(Archive& a, Plain& plain) { a(plain.x); }

// One of every type that an archive supports.
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

inline std::string Written(Everything& e) {
  Archive a;
  a(e);
  return a.Take();
}

struct Node {
  std::shared_ptr<Node> next;
  void Persist(Archive& a) { a(next); }
};

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

}  // namespace plumbline
