// The effect of rounding a magnitude into a narrower format, as comparisons of its bits. Magnitudes
// are f32 bits without the sign (every format up to f32 fits them exactly) or f64 bits. Header
// only, host and device.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"

namespace plumbline {

// The layout of a word that holds a value: bf16 in 16 bits, f32 in 32, f64 in 64.
template <typename W>
struct WordFormat;
template <>
struct WordFormat<uint16_t> {
  static constexpr int kFractionBits = 7;
  static constexpr int kFields = 256;
  static constexpr int kBias = 127;
};
template <>
struct WordFormat<uint32_t> {
  static constexpr int kFractionBits = 23;
  static constexpr int kFields = 256;
  static constexpr int kBias = 127;
};
template <>
struct WordFormat<uint64_t> {
  static constexpr int kFractionBits = 52;
  static constexpr int kFields = 2048;
  static constexpr int kBias = 1023;
};

template <typename W>
inline constexpr W kMagnitudeMask = static_cast<W>(static_cast<W>(~W{0}) >> 1);
template <typename W>
inline constexpr W kFractionMask = static_cast<W>((W{1} << WordFormat<W>::kFractionBits) - 1);
template <typename W>
inline constexpr W kInfinityBits = static_cast<W>(static_cast<W>(WordFormat<W>::kFields - 1)
                                                  << WordFormat<W>::kFractionBits);

// A magnitude m is flushed if 0 < m < subnormal_from, subnormal if subnormal_from <= m <
// normal_from, saturated if m >= saturated_from (and finite).
template <typename W>
struct FitBounds {
  W subnormal_from;
  W normal_from;
  W saturated_from;
};

// Returns the bits of an f32 or f64 value >= 0, or with next = 1 of the one above it; for bf16, of
// the least bf16 value not below that.
template <typename W>
PLUMB_HD constexpr W BitsNotBelow(double x, uint32_t next = 0) {
  if constexpr (sizeof(W) == 8) {
    return __builtin_bit_cast(uint64_t, x) + next;
  } else {
    const uint32_t bits = __builtin_bit_cast(uint32_t, static_cast<float>(x)) + next;
    return sizeof(W) == 4 ? static_cast<W>(bits) : static_cast<W>((bits + 0xffffu) >> 16);
  }
}

// Returns the f64 bits of a magnitude's value times 2^200, exactly: a normal number or zero
// wherever the exponent field is small, even if the thread flushes subnormals.
PLUMB_HD inline uint64_t ScaledUp(uint64_t magnitude) {
  double value = __builtin_bit_cast(double, magnitude);
  if (magnitude >> 52 == 0) value = static_cast<double>(magnitude) * PowerOfTwo(-1022);
  double scaled = value * PowerOfTwo(magnitude >> 52 == 0 ? 200 - 52 : 200);
  return __builtin_bit_cast(uint64_t, scaled);
}
PLUMB_HD inline uint64_t ScaledUp(uint32_t magnitude) {
  double value = __builtin_bit_cast(float, magnitude);
  if (magnitude >> 23 == 0) value = static_cast<double>(magnitude) * PowerOfTwo(-149);
  double scaled = value * PowerOfTwo(200);
  return __builtin_bit_cast(uint64_t, scaled);
}
PLUMB_HD inline uint64_t ScaledUp(uint16_t magnitude) {
  return ScaledUp(static_cast<uint32_t>(magnitude) << 16);
}

// Returns the bounds of `format` for unscaled values. Half of the least subnormal is flushed (ties
// to even), half a unit below the least normal rounds to it, and half a unit above the largest
// value rounds up, except in e4m3, where the largest value is the even neighbour.
template <typename W>
PLUMB_HD constexpr FitBounds<W> BoundsOf(DType format) {
  const FloatFormat f = FormatOf(format);
  const double half_unit = PowerOfTwo(f.min_exponent - f.precision);  // of the subnormals
  const double least_normal = PowerOfTwo(f.min_exponent);
  const double top = f.max_finite + PowerOfTwo(f.max_exponent - f.precision);
  return {BitsNotBelow<W>(half_unit, 1), BitsNotBelow<W>(least_normal - half_unit),
          BitsNotBelow<W>(top, format == DType::kE4M3 ? 1 : 0)};
}

// Returns the bounds of kFormatFitTargets[i], i < 4, as constants in the code.
template <typename W>
PLUMB_HD constexpr FitBounds<W> PlainBounds(int i) {
  constexpr FitBounds<W> kOfF16 = BoundsOf<W>(DType::kF16);
  constexpr FitBounds<W> kOfBF16 = BoundsOf<W>(DType::kBF16);
  constexpr FitBounds<W> kOfE4M3 = BoundsOf<W>(DType::kE4M3);
  constexpr FitBounds<W> kOfE5M2 = BoundsOf<W>(DType::kE5M2);
  return i == 0 ? kOfF16 : (i == 1 ? kOfBF16 : (i == 2 ? kOfE4M3 : kOfE5M2));
}

// Returns the bounds of `format` (e4m3 or e5m2) for values that share a scale 2^k, the largest that
// brings `amax` (its bits, not 0) to at most the largest value, 1.75 * 2^max_exponent in both
// formats. Needs an exponent field of kLeastScalableField or more; smaller values are scaled up
// first.
inline constexpr int kLeastScalableField = 33;

// Returns one more than the exponent field of amax if its significand exceeds 1.75: the field of
// the power of two that the scale brings to 2^max_exponent.
template <typename W>
PLUMB_HD constexpr W ScaledField(W amax) {
  constexpr int kShift = WordFormat<W>::kFractionBits;
  return static_cast<W>(static_cast<W>(amax + ((W{1} << (kShift - 2)) - 1)) >> kShift);
}

// 1.875 * 2^-7 to e4m3's 2^8, or 1.75 * 2^-15 to e5m2's 2^15.
template <typename W>
PLUMB_HD constexpr W ScaledNormalFrom(bool e4m3, W amax) {
  constexpr int kShift = WordFormat<W>::kFractionBits;
  const W field = static_cast<W>(ScaledField(amax) - (e4m3 ? 15 : 30));
  return static_cast<W>(static_cast<W>(field << kShift) |
                        static_cast<W>(static_cast<W>(e4m3 ? 7 : 6) << (kShift - 3)));
}

template <typename W>
PLUMB_HD constexpr FitBounds<W> ScaledBounds(DType format, W amax) {
  const bool e4m3 = format == DType::kE4M3;
  // Half the least subnormal is 18 (e4m3: 2^-10 to 2^8) or 32 (2^-17 to 2^15) exponents below.
  const W flush = static_cast<W>(static_cast<W>(ScaledField(amax) - (e4m3 ? 18 : 32))
                                 << WordFormat<W>::kFractionBits);
  return {static_cast<W>(flush + 1), ScaledNormalFrom(e4m3, amax), kInfinityBits<W>};
}

}  // namespace plumbline
