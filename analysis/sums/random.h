// Reproducible random numbers: equal on every machine and with every library.
#pragma once

#include <cmath>
#include <cstdint>

namespace plumbline::sums {

// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  // Returns a number in [0, n). n > 0 is so small that the bias does not matter.
  int Below(int n) { return static_cast<int>(Bits() % static_cast<uint64_t>(n)); }
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }  // [0, 1)
  double Normal() {                                                         // Box-Muller
    const double u = 1 - Uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * Uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace plumbline::sums
