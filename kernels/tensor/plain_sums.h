// The exact sums of a tensor's ordinary values, magnitudes and squares as a lane adds them in a few
// operations each. Host and device; Warp and Sink are those of tensor/tile.h.
//
// Values are added in units of a power of two, so chosen that each value near the largest is an
// integer of few enough bits: adding 1.5 2^M, M the fraction's bits, to a real leaves that integer
// in its low bits. f32 is added in f64, bf16 in f32. What is too small for the units of bf16 goes
// to a second sum with smaller ones, what is too small for all to the sink, one by one.
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/fit.h"
#include "kernels/tensor/lane_vector.h"
#include "kernels/tensor/tile_lanes.h"
#include "kernels/tensor/wide_sums.h"

namespace plumbline {

// a b + c where a b is exact, so that one rounding is two.
PLUMB_HD inline float ExactProductPlus(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}
PLUMB_HD inline double ExactProductPlus(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return a * b + c;
#endif
}

// The sums of one lane, in units of 2^unit, squares in units of 2^(2 unit).
template <typename Raw>
struct UnitSums;

// bf16: 8 bits and a window of 13 exponents below the largest, one of which is headroom, make
// integers below 2^21; four magnitudes are below 2^23, and kMostValues values below 2^31, their
// squares below 2^52.
template <>
struct UnitSums<uint16_t> {
  using Real = float;
  static constexpr int kFraction = 7;
  static constexpr int kWindow = 13;
  static constexpr int kTiers = 2;
  static constexpr int kMostValues = 1024;

  uint32_t sum = 0;  // modulo 2^32
  uint32_t magnitudes = 0;
  uint64_t squares = 0;

  PLUMB_HD void Add(const float* x, int n, int unit) {
    constexpr float kSigned = 12582912.0f;  // 1.5 2^23
    constexpr float kPositive = 8388608.0f;
    const float scale = __builtin_bit_cast(float, static_cast<uint32_t>(127 - unit) << 23);
    PLUMB_UNROLL for (int k = 0; k < n; ++k) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, ExactProductPlus(x[k], scale, kSigned));
      const uint32_t value = bits - __builtin_bit_cast(uint32_t, kSigned);
      sum += value;
      const int64_t wide = static_cast<int32_t>(value);
      squares += static_cast<uint64_t>(wide * wide);
    }
    PLUMB_UNROLL for (int k = 0; k < n; k += 4) {
      const float four =
          (Magnitude(x[k]) + Magnitude(x[k + 1])) + (Magnitude(x[k + 2]) + Magnitude(x[k + 3]));
      const float shifted = ExactProductPlus(four, scale, kPositive);
      magnitudes += __builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, kPositive);
    }
  }
  PLUMB_HD Int128 Sum() const { return static_cast<int32_t>(sum); }
  PLUMB_HD Int128 Magnitudes() const { return magnitudes; }
  PLUMB_HD Int128 Squares(int) const { return static_cast<Int128>(squares); }

 private:
  PLUMB_HD static float Magnitude(float x) {
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) & 0x7fffffffu);
  }
};

// f32: 24 bits and a window of 25 exponents, one of which is headroom, make integers below 2^49;
// sums of four are below 2^51 and kMostValues values below 2^59. A square has 48 bits and is
// parted: what lies above 2^-51 of the largest square, and the rest, an integer up to 2^46 in units
// of the least.
template <>
struct UnitSums<uint32_t> {
  using Real = double;
  static constexpr int kFraction = 23;
  static constexpr int kWindow = 25;
  static constexpr int kTiers = 1;
  static constexpr int kMostValues = 1024;
  static constexpr int kApart = 47;  // high's unit over low's, as a power of two

  // Of the reals' bits, modulo 2^64: the integers, and what was added to each to find it.
  uint64_t sum = 0;
  uint64_t magnitudes = 0;
  uint64_t high = 0;
  uint64_t low = 0;
  uint32_t fours = 0;

  PLUMB_HD void Add(const double* x, int n, int unit) {
    const double scale = Factor(1, -unit);
    const double to_high = ToHigh(unit);
    const double to_low = ToLow(unit);
    fours += static_cast<uint32_t>(n) / 4;
    PLUMB_UNROLL for (int k = 0; k < n; ++k) {
      const double square = x[k] * x[k];
      const double shifted = square + to_high;
      high += Bits(shifted);
      low += Bits(square - (shifted - to_high) + to_low);
    }
    PLUMB_UNROLL for (int k = 0; k < n; k += 4) {
      const double four = (x[k] + x[k + 1]) + (x[k + 2] + x[k + 3]);
      sum += Bits(ExactProductPlus(four, scale, kSigned));
      const double all =
          (AbsValue(x[k]) + AbsValue(x[k + 1])) + (AbsValue(x[k + 2]) + AbsValue(x[k + 3]));
      magnitudes += Bits(ExactProductPlus(all, scale, kPositive));
    }
  }
  PLUMB_HD Int128 Sum() const { return Integers(sum, fours, kSigned); }
  PLUMB_HD Int128 Magnitudes() const { return Integers(magnitudes, fours, kPositive); }
  PLUMB_HD Int128 Squares(int unit) const {
    return Integers(high, 4 * fours, ToHigh(unit)) * (Int128{1} << kApart) +
           Integers(low, 4 * fours, ToLow(unit));
  }

 private:
  static constexpr double kSigned = 6755399441055744.0;  // 1.5 2^52
  static constexpr double kPositive = 4503599627370496.0;

  PLUMB_HD static double ToHigh(int unit) { return Factor(kSigned, 2 * unit + kApart); }
  PLUMB_HD static double ToLow(int unit) { return Factor(kSigned, 2 * unit); }
  // x 2^e, normal.
  PLUMB_HD static double Factor(double x, int e) {
    return __builtin_bit_cast(double, Bits(x) + (static_cast<uint64_t>(e) << 52));
  }
  PLUMB_HD static Int128 Integers(uint64_t bits, uint32_t n, double added) {
    return static_cast<int64_t>(bits - n * Bits(added));
  }
  PLUMB_HD static uint64_t Bits(double x) { return __builtin_bit_cast(uint64_t, x); }
};

template <typename Warp, typename Sink, typename Raw>
class PlainSums {
  template <typename T>
  using Var = typename Warp::template Var<T>;
  using Sums = UnitSums<Raw>;
  using Real = typename Sums::Real;
  using Vector = LaneVector<Raw>;

 public:
  // Exponent fields of the values that come, but for zeros. So no unit leaves the range of f32, nor
  // does a sum of four magnitudes.
  static constexpr uint32_t kLeastField = 33;
  static constexpr uint32_t kMostField = 250;

  PLUMB_DEVICE explicit PlainSums(const Sink& sink) : sink_(sink) {}

  // Before a round is added, on every lane: the exponent field of its largest magnitude. Units
  // follow it up, and down where the whole round would be too small for them.
  PLUMB_DEVICE void Aim(int field) {
    if (Holds(field)) return;
    Flush();
    top_ = field + 1;
  }

  // Do values whose largest has that exponent field go with the units as they are?
  PLUMB_DEVICE bool Holds(int field) const {
    return top_ != 0 && field <= top_ && field + Sums::kWindow >= top_;
  }

  // Lane l's values. `least`: no magnitude but zero is below it, as an exponent field.
  PLUMB_DEVICE void Add(const Vector& vector, int least, int l) {
    Real x[Vector::kValues];
    PLUMB_UNROLL for (int k = 0; k < Vector::kValues; ++k) {
      x[k] = static_cast<Real>(__builtin_bit_cast(float, vector.Value(k)));
    }
    if (least < Floor(0)) AddSmall(vector, l, x);
    tiers_[0][l].Add(x, Vector::kValues, Unit(0));
  }

  // Adds the lanes' sums up and gives them to the sink.
  PLUMB_DEVICE void Flush() {
    if (top_ == 0) return;
    PLUMB_UNROLL for (int tier = 0; tier < Sums::kTiers; ++tier) {
      Var<Int128> sum;
      Var<Int128> magnitudes;
      Var<Int128> squares;
      const int unit = Unit(tier);
      Warp::Each([&](int l) {
        sum[l] = tiers_[tier][l].Sum();
        magnitudes[l] = tiers_[tier][l].Magnitudes();
        squares[l] = tiers_[tier][l].Squares(unit);
        tiers_[tier][l] = Sums{};
      });
      const auto added = [](Int128 a, Int128 b) { return a + b; };
      sum = Reduced<Warp>(sum, added);
      magnitudes = Reduced<Warp>(magnitudes, added);
      squares = Reduced<Warp>(squares, added);
      Warp::Each([&](int l) {
        if (l == 0) GiveWide(sink_, kWideSum, sum[l], unit);
        if (l == 1) GiveWide(sink_, kWideMagnitudes, magnitudes[l], unit);
        if (l == 2) GiveWide(sink_, kWideSquares, squares[l], 2 * unit);
      });
    }
    top_ = 0;
  }

 private:
  // The exponent of a tier's units, and the least exponent field that it holds.
  PLUMB_DEVICE int Unit(int tier) const {
    return Floor(tier) - WordFormat<uint32_t>::kBias - Sums::kFraction;
  }
  PLUMB_DEVICE int Floor(int tier) const {
    return top_ - Sums::kWindow - tier * (Sums::kWindow + 1);
  }

  // Takes what is too small for the first tier out of x and adds it elsewhere.
  PLUMB_DEVICE void AddSmall(const Vector& vector, int l, Real* x) {
    Real small[Vector::kValues];
    PLUMB_UNROLL for (int k = 0; k < Vector::kValues; ++k) {
      const uint32_t bits = vector.Value(k) & 0x7fffffffu;
      const int field = static_cast<int>(bits >> 23);
      small[k] = 0;
      if (field >= Floor(0)) continue;
      if (Sums::kTiers > 1 && field >= Floor(1)) {
        small[k] = x[k];
      } else if (bits != 0) {
        const FloatParts parts = PartsOf(__builtin_bit_cast(float, vector.Value(k)));
        GiveValue(sink_, parts.significand, parts.exponent, parts.negative);
      }
      x[k] = 0;
    }
    if constexpr (Sums::kTiers > 1) tiers_[1][l].Add(small, Vector::kValues, Unit(1));
  }

  Sink sink_;
  Var<Sums> tiers_[Sums::kTiers]{};
  int top_ = 0;  // the exponent field that the units belong to; 0: none yet
};

}  // namespace plumbline
