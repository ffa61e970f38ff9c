// Floating formats narrower than f32, the spacing of their values, and rounding into them. Header
// only, for host and device code; the results have the same bits on both.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace plumbline {

// The parameters of a binary floating format: `precision` significand bits (including the leading
// one), normal exponents in [min_exponent, max_exponent]. Values are (-1)^s 2^e 1.f.
struct FloatFormat {
  int precision;
  int min_exponent;
  int max_exponent;
  double max_finite;
};

// Returns the format of a floating dtype; f64's parameters for others. e4m3 is the OCP 8-bit
// format: no infinities, one NaN per sign, largest value 448 (1.75 * 2^8).
PLUMB_HD constexpr FloatFormat FormatOf(DType t) {
  switch (t) {
    case DType::kF32:
      return {24, -126, 127, 3.4028234663852886e38};
    case DType::kF16:
      return {11, -14, 15, 65504.0};
    case DType::kBF16:
      return {8, -126, 127, 3.3895313892515355e38};
    case DType::kE4M3:
      return {4, -6, 8, 448.0};
    case DType::kE5M2:
      return {3, -14, 15, 57344.0};
    default:
      return {53, -1022, 1023, 1.7976931348623157e308};
  }
}

// Returns 2^e for e in [-1074, 1023], exactly.
PLUMB_HD constexpr double PowerOfTwo(int e) {
  const uint64_t bits = e >= -1022 ? static_cast<uint64_t>(e + 1023) << 52 : 1ull << (e + 1074);
  return __builtin_bit_cast(double, bits);
}

PLUMB_HD constexpr bool IsFiniteValue(double x) {
  return ((__builtin_bit_cast(uint64_t, x) >> 52) & 0x7ff) != 0x7ff;
}

PLUMB_HD constexpr double AbsValue(double x) {
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, x) & 0x7fffffffffffffffull);
}

// Returns the unit in the last place of `a` in format `t`: 2^max(floor(log2|a|)-p+1, emin-p+1), so
// the spacing of subnormals at and below them. Returns |a| for NaN and infinity. `a` need not be
// representable in `t`.
PLUMB_HD constexpr double UlpOf(double a, DType t) {
  if (!IsFiniteValue(a)) return AbsValue(a);
  const FloatFormat f = FormatOf(t);
  const int field = static_cast<int>((__builtin_bit_cast(uint64_t, a) >> 52) & 0x7ff);
  const int e = field - 1023;  // zero and f64 subnormals: below every min_exponent
  return PowerOfTwo((e > f.min_exponent ? e : f.min_exponent) - f.precision + 1);
}

// The rounding of a value between two representable ones. kDown is towards minus infinity, kUp
// towards plus infinity; kNearestAway rounds ties away from zero.
enum class RoundingMode : uint8_t { kNearestEven, kNearestAway, kTowardZero, kDown, kUp };

namespace internal {

// Returns true if a magnitude rounds up. Its whole part is odd or even, and its fraction is `rest`
// of a unit (in [0, 1)).
PLUMB_HD constexpr bool RoundsUp(double rest, bool odd, bool negative, RoundingMode mode) {
  switch (mode) {
    case RoundingMode::kNearestEven:
      return rest > 0.5 || (rest == 0.5 && odd);
    case RoundingMode::kNearestAway:
      return rest >= 0.5;
    case RoundingMode::kTowardZero:
      return false;
    case RoundingMode::kDown:
      return rest > 0 && negative;
    case RoundingMode::kUp:
      return rest > 0 && !negative;
  }
  return false;
}

// Returns the result for a magnitude that rounds to beyond the largest finite value (IEEE 754,
// 7.4): modes that round it towards zero stop at that value.
PLUMB_HD constexpr double Overflowed(bool negative, DType t, RoundingMode mode) {
  const bool stops = mode == RoundingMode::kTowardZero ||
                     mode == (negative ? RoundingMode::kUp : RoundingMode::kDown);
  const double beyond = t == DType::kE4M3 ? __builtin_nan("") : __builtin_inf();
  const double magnitude = stops ? FormatOf(t).max_finite : beyond;
  return negative ? -magnitude : magnitude;
}

// Returns true if `a` is in f's normal range and rounding cannot leave it.
PLUMB_HD constexpr bool IsWellInside(double a, const FloatFormat& f) {
  const int e = static_cast<int>((__builtin_bit_cast(uint64_t, a) >> 52) & 0x7ff) - 1023;
  return e >= f.min_exponent && e < f.max_exponent;
}

// Returns the significand without its last `cut` bits (1 to 52), to nearest even or towards zero. A
// carry increases the exponent, which is correct.
PLUMB_HD constexpr double RoundBits(double a, int cut, bool to_nearest) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, a), one = uint64_t{1} << cut;
  const uint64_t up = to_nearest ? (one >> 1) - 1 + ((bits >> cut) & 1) : 0;
  return __builtin_bit_cast(double, (bits + up) & ~(one - 1));
}

}  // namespace internal

// Returns `a` rounded once into format `t`. Beyond the largest finite value (after rounding):
// infinity (in e4m3, which has none: NaN), or the largest finite value if the mode rounds towards
// zero there.
PLUMB_HD constexpr double RoundToFormat(double a, DType t,
                                        RoundingMode mode = RoundingMode::kNearestEven) {
  if (t == DType::kF64 || !IsFiniteValue(a) || a == 0) {
    return t == DType::kE4M3 && !IsFiniteValue(a) ? __builtin_nan("") : a;
  }
  const FloatFormat f = FormatOf(t);
  const bool to_nearest = mode == RoundingMode::kNearestEven;
  if ((to_nearest || mode == RoundingMode::kTowardZero) && internal::IsWellInside(a, f)) {
    return internal::RoundBits(a, 53 - f.precision, to_nearest);
  }
  const double unit = UlpOf(a, t);
  // |a| / unit < 2^25 for every format here, so both parts of the rounding are exact.
  const double q = AbsValue(a) / unit;
  const auto whole = static_cast<int64_t>(q);
  const bool up = internal::RoundsUp(q - static_cast<double>(whole), (whole & 1) != 0, a < 0, mode);
  const double r = static_cast<double>(whole + (up ? 1 : 0)) * unit;
  if (r > f.max_finite) return internal::Overflowed(a < 0, t, mode);
  return a < 0 ? -r : r;
}

namespace internal {

// Rounds an f32 to a format of `MantissaBits` stored bits and `ExponentBits` exponent bits with the
// IEEE layout (bias 2^(ExponentBits-1)-1), nearest even. `overflow` is the code after the largest
// finite value, `nan` the code of a NaN, both without sign.
template <int ExponentBits, int MantissaBits>
PLUMB_HD constexpr uint32_t EncodeSmall(float x, uint32_t overflow, uint32_t overflow_result,
                                        uint32_t nan) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t sign = (bits >> 31) << (ExponentBits + MantissaBits);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | nan;
  if (magnitude == 0x7f800000u) return sign | overflow_result;
  constexpr int kMinExponent = 2 - (1 << (ExponentBits - 1));
  const int field = static_cast<int>(magnitude >> 23);
  const int e = field > 0 ? field - 127 : -126;
  const uint32_t significand = (magnitude & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
  const int shift = 23 - MantissaBits + (e < kMinExponent ? kMinExponent - e : 0);
  if (shift > 25) return sign;  // below half of the smallest subnormal
  const uint32_t rest = significand & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  uint32_t q = significand >> shift;
  if (rest > half || (rest == half && (q & 1u) != 0)) ++q;
  // The leading one of q adds one to the exponent field. A carry of the rounding adds one too.
  const uint32_t above = e > kMinExponent ? static_cast<uint32_t>(e - kMinExponent) : 0u;
  const uint32_t code = (above << MantissaBits) + q;
  return sign | (code >= overflow ? overflow_result : code);
}

template <int ExponentBits, int MantissaBits>
PLUMB_HD constexpr float DecodeFinite(uint32_t code) {
  constexpr int kMinExponent = 2 - (1 << (ExponentBits - 1));
  const uint32_t field = (code >> MantissaBits) & ((1u << ExponentBits) - 1);
  const uint32_t fraction = code & ((1u << MantissaBits) - 1);
  const uint32_t q = fraction | (field > 0 ? 1u << MantissaBits : 0u);
  const int e = kMinExponent + (field > 0 ? static_cast<int>(field) - 1 : 0) - MantissaBits;
  const float value = static_cast<float>(static_cast<double>(q) * PowerOfTwo(e));
  return (code >> (ExponentBits + MantissaBits)) & 1u ? -value : value;
}

}  // namespace internal

PLUMB_HD constexpr float BF16ToFloat(uint16_t code) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(code) << 16);
}
PLUMB_HD constexpr uint16_t FloatToBF16(float x) {
  return static_cast<uint16_t>(internal::EncodeSmall<8, 7>(x, 0x7f80u, 0x7f80u, 0x7fc0u));
}

PLUMB_HD constexpr float F16ToFloat(uint16_t code) {
  if ((code & 0x7c00u) == 0x7c00u) {  // infinity or NaN; the payload is kept
    const uint32_t bits = (static_cast<uint32_t>(code & 0x8000u) << 16) | 0x7f800000u |
                          (static_cast<uint32_t>(code & 0x3ffu) << 13);
    return __builtin_bit_cast(float, bits);
  }
  return internal::DecodeFinite<5, 10>(code);
}
PLUMB_HD constexpr uint16_t FloatToF16(float x) {
  return static_cast<uint16_t>(internal::EncodeSmall<5, 10>(x, 0x7c00u, 0x7c00u, 0x7e00u));
}

PLUMB_HD constexpr float E4M3ToFloat(uint8_t code) {
  if ((code & 0x7fu) == 0x7fu) return code & 0x80u ? -__builtin_nanf("") : __builtin_nanf("");
  return internal::DecodeFinite<4, 3>(code);
}
// Values whose rounded value exceeds 448 become NaN: the format has no infinity, and saturating
// would hide the overflow.
PLUMB_HD constexpr uint8_t FloatToE4M3(float x) {
  return static_cast<uint8_t>(internal::EncodeSmall<4, 3>(x, 0x7fu, 0x7fu, 0x7fu));
}

PLUMB_HD constexpr float E5M2ToFloat(uint8_t code) {
  return F16ToFloat(static_cast<uint16_t>(static_cast<uint32_t>(code) << 8));
}
PLUMB_HD constexpr uint8_t FloatToE5M2(float x) {
  return static_cast<uint8_t>(internal::EncodeSmall<5, 2>(x, 0x7cu, 0x7cu, 0x7eu));
}

}  // namespace plumbline
