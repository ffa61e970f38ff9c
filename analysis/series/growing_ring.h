// Keeps the newest values of a series in a ring of fixed capacity whose memory grows as it fills. A
// series of one point costs a few bytes in memory and in a checkpoint, not the whole ring.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// A ring with the places 0 to kCapacity - 1. Each is 0 until it is written. Not thread-safe.
template <typename T, size_t kCapacity>
class GrowingRing {
 public:
  T operator[](size_t place) const { return place < values_.size() ? values_[place] : T{}; }
  T& operator[](size_t place) {
    if (place >= values_.size()) Grow(place);
    return values_[place];
  }
  // Iterate over the allocated places.
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }

  // Stores the places up to the last one that is not 0. So rings of equal content give equal bytes,
  // whatever their allocated size.
  void Persist(Archive& a) {
    if (a.reading()) {
      a(values_);
      if (values_.size() > kCapacity) a.Fail("a ring within its capacity");
      return;
    }
    const T none{};
    size_t used = values_.size();
    while (used > 0 && std::memcmp(&values_[used - 1], &none, sizeof(T)) == 0) --used;
    std::vector<T> held(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(used));
    a(held);
  }

 private:
  void Grow(size_t place) {
    constexpr size_t kFirst = 4;
    values_.resize(std::min(kCapacity, std::max(kFirst, std::bit_ceil(place + 1))));
  }

  std::vector<T> values_;
};

}  // namespace plumbline::analysis
