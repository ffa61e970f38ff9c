// The exact sum of doubles, and a single rounding of it. Every error of an accumulation is measured
// against it.
//
// A fixed-point number of 2,240 bits that holds every finite double: 70 digits of 32 bits, each
// stored in 64 bits so that carries can wait (Kulisch's long accumulator; the delayed carries as in
// Neal, "Fast exact summation using small and large superaccumulators", 2015). 576 bytes, no
// allocation. Copyable; not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"

namespace plumbline {

class ExactSum {
 public:
  // Adds x. Exact for up to 2^63 addends. `x` must be finite: the caller must keep out NaN and
  // infinity.
  void Add(double x);
  void Subtract(double x) { Add(-x); }
  void Add(const ExactSum& other);
  void Subtract(const ExactSum& other);
  void Clear() { *this = ExactSum(); }

  int Sign() const;  // -1, 0, 1

  // Returns the sum divided by `divisor` > 0, rounded once into `t`; never rounded twice, for any
  // magnitudes. Zero is +0; too small and too large values behave as in RoundToFormat. Floating
  // dtypes only.
  double RoundTo(DType t, RoundingMode mode = RoundingMode::kNearestEven,
                 uint32_t divisor = 1) const;
  double Value() const { return RoundTo(DType::kF64); }

  // Returns the ulp in `t` of the exact sum / divisor (not of its rounded value): see UlpOf. A sum
  // beyond the range of `t` has the ulp that it would have with a wider exponent; beyond 2^1023
  // that is at most infinity.
  double Ulp(DType t, uint32_t divisor = 1) const;

 private:
  static constexpr int kDigits = 70;
  static constexpr int kLowest = -1152;  // exponent of the lowest bit: 78 below the least double,
                                         // so that a quotient keeps the bits that rounding needs
  static constexpr int64_t kMostPending = int64_t{1} << 30;

  // |sum / divisor| in proper digits, and whether a remainder is left below them.
  struct Magnitude {
    std::array<uint32_t, kDigits> digits{};
    bool negative = false;
    bool remainder = false;
    int top = -1;  // highest set bit; -1: zero
  };

  void Propagate();
  Magnitude Divided(uint32_t divisor) const;

  std::array<int64_t, kDigits> digits_{};  // value = sum of digits_[i] 2^(kLowest + 32 i)
  int64_t pending_ = 0;                    // additions since carries were last propagated
};

}  // namespace plumbline
