// What rounding into a narrower format does to a magnitude, as comparisons of its bits. Magnitudes
// are f32 bits without the sign (every format up to f32 fits them exactly) or f64 bits. Header
// only, host and device.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"

namespace plumbline {

// The layout of a word that holds a value: f32 in 32 bits, f64 in 64.
template <typename W>
struct WordFormat;
template <>
struct WordFormat<uint32_t> {
  using Float = float;
  static constexpr DType kDType = DType::kF32;
  static constexpr int kFractionBits = 23;
  static constexpr int kFields = 256;
  static constexpr int kBias = 127;
};
template <>
struct WordFormat<uint64_t> {
  using Float = double;
  static constexpr DType kDType = DType::kF64;
  static constexpr int kFractionBits = 52;
  static constexpr int kFields = 2048;
  static constexpr int kBias = 1023;
};

template <typename W>
inline constexpr W kMagnitudeMask = static_cast<W>(~W{0}) >> 1;
template <typename W>
inline constexpr W kFractionMask = (W{1} << WordFormat<W>::kFractionBits) - 1;
template <typename W>
inline constexpr W kInfinityBits = static_cast<W>(WordFormat<W>::kFields - 1)
                                   << WordFormat<W>::kFractionBits;

// A magnitude m is flushed when 0 < m < subnormal_from, subnormal when subnormal_from <= m <
// normal_from, saturated when m >= saturated_from (and finite).
template <typename W>
struct FitBounds {
  W subnormal_from;
  W normal_from;
  W saturated_from;
};

namespace internal {
template <typename W>
PLUMB_HD constexpr W MagnitudeBits(double x) {
  return __builtin_bit_cast(W, static_cast<typename WordFormat<W>::Float>(x));
}
}  // namespace internal

// The bounds of `format` for unscaled values. All of them are values of W's format: half of the
// least subnormal flushes (ties to even), half below the least normal rounds to it, half above the
// largest value rounds up but in e4m3, where the largest is the even neighbour.
template <typename W>
PLUMB_HD constexpr FitBounds<W> BoundsOf(DType format) {
  const FloatFormat f = FormatOf(format);
  const double least_normal = PowerOfTwo(f.min_exponent);
  const double half_unit = PowerOfTwo(f.min_exponent - f.precision);  // of the subnormals
  const double top = f.max_finite + PowerOfTwo(f.max_exponent - f.precision);
  const W next = format == DType::kE4M3 ? 1 : 0;
  return {static_cast<W>(internal::MagnitudeBits<W>(half_unit) + 1),
          internal::MagnitudeBits<W>(least_normal - half_unit),
          static_cast<W>(internal::MagnitudeBits<W>(top) + next)};
}

// The bounds of `format` (e4m3 or e5m2) for values that share a scale 2^k, the largest that takes
// `amax` (its bits, not 0) to at most the largest value, 1.75 * 2^max_exponent in both formats.
// Needs an exponent field of kLeastScalableField or more; what is smaller is scaled up first.
inline constexpr int kLeastScalableField = 33;

template <typename W>
PLUMB_HD constexpr FitBounds<W> ScaledBounds(DType format, W amax) {
  constexpr int kShift = WordFormat<W>::kFractionBits;
  // One more where the significand exceeds 1.75: the exponent of 2^max_exponent before scaling.
  const W field = (amax + ((W{1} << (kShift - 2)) - 1)) >> kShift;
  const bool e4m3 = format == DType::kE4M3;
  // Half the least subnormal lies 18 (e4m3: 2^-10 to 2^8) or 32 (2^-17 to 2^15) exponents below.
  const W flush = (field - (e4m3 ? 18 : 32)) << kShift;
  // 1.875 * 2^-7 to 2^8, or 1.75 * 2^-15 to 2^15.
  const W normal = ((field - (e4m3 ? 15 : 30)) << kShift) | (W{e4m3 ? 7u : 6u} << (kShift - 3));
  return {static_cast<W>(flush + 1), normal, kInfinityBits<W>};
}

}  // namespace plumbline
