// Exact sums of doubles and of their squares, for any magnitudes: a fixed-point number that holds
// any finite f64 and the square of any (Kulisch's long accumulator, with delayed carries). Since
// integer additions commute, threads and launch shapes cannot change it.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace plumbline {

__extension__ typedef unsigned __int128 Uint128;
__extension__ typedef __int128 Int128;

// The digits of a WideSum: the value is the sum of digit[i] * 2^(kLowestBit + 32 i). Digits hold
// more than 32 bits, and a sign, until carries are propagated; each addition changes a digit by
// less than 2^33, so 2^29 additions fit between two propagations.
struct WideDigits {
  static constexpr int kLowestBit = -2176;  // the least product is 2^-2148
  static constexpr int kCount = 141;        // up to 2^2336: 2^60 squares of the largest f64
  int64_t digit[kCount];

  static PLUMB_HD constexpr int First(int exponent) { return (exponent - kLowestBit) >> 5; }
};

// Splits v * 2^exponent into digits: calls add(i, part), part in [0, 2^33), for at most five digits
// i. `exponent` >= kLowestBit and the product below 2^2300.
template <typename AddDigit>
PLUMB_HD inline void SplitDigits(Uint128 v, int exponent, AddDigit add) {
  int i = WideDigits::First(exponent);
  const int shift = (exponent - WideDigits::kLowestBit) & 31;
  uint64_t carry = 0;
  while (v != 0 || carry != 0) {
    const uint64_t part = (static_cast<uint64_t>(v) & 0xffffffffu) << shift;
    add(i, static_cast<int64_t>((part & 0xffffffffu) + carry));
    carry = part >> 32;
    v >>= 32;
    ++i;
  }
}

// A finite f64: (-1)^negative significand 2^exponent.
struct FloatParts {
  uint64_t significand;
  int exponent;
  bool negative;
};
PLUMB_HD constexpr FloatParts PartsOf(double x) {
  const auto bits = __builtin_bit_cast(uint64_t, x);
  const int field = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & 0xfffffffffffffull;
  return {field > 0 ? fraction | 1ull << 52 : fraction, (field > 0 ? field : 1) - 1075,
          (bits >> 63) != 0};
}

// Host side. Not thread-safe.
class WideSum {
 public:
  // Adds v * 2^exponent, or subtracts it.
  void Add(Uint128 v, int exponent, bool negative = false) {
    SplitDigits(v, exponent,
                [&](int i, int64_t part) { digits_.digit[i] += negative ? -part : part; });
    if (++pending_ >= kMostPending) Propagate();
  }
  void Add(double x);  // finite
  void Add(const WideSum& other);
  // Adds digits from elsewhere, of at most 2^29 additions.
  void Add(const WideDigits& digits);

  // Returns the nearest double, ties to even; +0 for zero, infinity beyond the largest.
  double Nearest() const;
  // Returns the nearest double, and the one nearest to the remainder (0 after an infinity).
  void Nearest(double* high, double* low) const;

 private:
  static constexpr int64_t kMostPending = int64_t{1} << 28;

  void Propagate();

  WideDigits digits_{};
  int64_t pending_ = 0;
};

}  // namespace plumbline
