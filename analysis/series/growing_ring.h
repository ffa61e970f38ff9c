// The newest values of a series in a ring of fixed capacity whose memory grows as it fills: a
// series of one point costs a few bytes, not the ring.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

// Places from 0 to kCapacity - 1, all of them 0 until they are written. Not thread-safe.
template <typename T, size_t kCapacity>
class GrowingRing {
 public:
  T operator[](size_t place) const { return place < values_.size() ? values_[place] : T{}; }
  T& operator[](size_t place) {
    if (place >= values_.size()) Grow(place);
    return values_[place];
  }
  // Those that there is memory for.
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }

  // As a std::array of the capacity.
  void Persist(Archive& a) {
    std::array<T, kCapacity> whole{};
    std::copy(values_.begin(), values_.end(), whole.begin());
    a(whole);
    if (!a.reading()) return;
    size_t used = kCapacity;
    const T none{};
    while (used > 0 && std::memcmp(&whole[used - 1], &none, sizeof(T)) == 0) --used;
    values_.assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(used));
  }

 private:
  void Grow(size_t place) {
    constexpr size_t kFirst = 4;
    values_.resize(std::min(kCapacity, std::max(kFirst, std::bit_ceil(place + 1))));
  }

  std::vector<T> values_;
};

}  // namespace plumbline::rules
