#include "analysis/collective/case/distinct.h"

#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace plumbline::analysis {
namespace {

// Two 64-bit mixers (Murmur3's and SplitMix64's), so that different kinds do not collide by chance.
using Key = std::pair<uint64_t, uint64_t>;

uint64_t Mixed(uint64_t z, uint64_t a, uint64_t b) {
  z = (z ^ (z >> 33)) * a;
  z = (z ^ (z >> 29)) * b;
  return z ^ (z >> 32);
}

void Take(double v, Key& key) {
  const auto bits = std::bit_cast<uint64_t>(v == 0 ? 0.0 : v);  // +0 equals -0
  key.first = Mixed(key.first ^ bits, 0xff51afd7ed558ccdull, 0xc4ceb9fe1a85ec53ull);
  key.second = Mixed(key.second + bits, 0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull) + 1;
}

Key KeyOf(const ReductionCase& c, int32_t column) {
  double largest = 0;
  double sign = 0;
  for (int r = 0; r < c.ranks; ++r) {
    const double x = c.input(r, column);
    if (sign == 0 && x != 0) sign = x < 0 ? -1 : 1;
    largest = std::fmax(largest, std::fabs(x));
  }
  const int exponent = largest > 0 ? std::ilogb(largest) : 0;
  Key key{0, 0};
  for (int r = 0; r < c.ranks; ++r) Take(std::ldexp(sign * c.input(r, column), -exponent), key);
  const double y = c.output[static_cast<size_t>(column)];
  Take(std::isfinite(y) ? std::ldexp(sign * y, -exponent) : HUGE_VAL, key);
  return key;
}

}  // namespace

DistinctSamples FindDistinct(const ReductionCase& c, std::span<const int32_t> columns) {
  DistinctSamples out;
  std::set<Key> seen;
  for (const int32_t column : columns)
    (seen.insert(KeyOf(c, column)).second ? out.first : out.repeated).push_back(column);
  return out;
}

std::vector<int32_t> KindsOf(const ReductionCase& c) {
  std::vector<int32_t> kinds;
  std::map<Key, int32_t> number;
  for (int32_t i = 0; i < c.samples; ++i)
    kinds.push_back(number.try_emplace(KeyOf(c, i), number.size()).first->second);
  return kinds;
}

}  // namespace plumbline::analysis
