// Converts codes of narrow formats to f32 bits, without branches, so that loops vectorise. Equal to
// F16ToFloat, E4M3ToFloat and E5M2ToFloat except a NaN's payload. Host and device.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace plumbline {

// Converts a format of `ExponentBits` and `FractionBits` with the IEEE layout. Its topmost exponent
// means infinity and NaN, or, in e4m3, only the topmost code NaN.
template <int ExponentBits, int FractionBits>
PLUMB_HD constexpr uint32_t WidenCode(uint32_t code) {
  constexpr bool kInfinities = ExponentBits == 5;
  constexpr uint32_t kTopField = (1u << ExponentBits) - 1;
  constexpr uint32_t kBias = kTopField / 2;
  constexpr uint32_t kMask = (1u << (ExponentBits + FractionBits)) - 1;
  constexpr uint32_t kRebias = (127u - kBias) << 23;
  const uint32_t magnitude = (code & kMask) << (23 - FractionBits);
  const uint32_t field = magnitude >> 23;
  uint32_t normal = magnitude + kRebias;
  if constexpr (kInfinities) {
    normal += field == kTopField ? kRebias : 0u;  // 31 + 2 * 112 = 255
  } else {
    normal = (code & kMask) == kMask ? 0x7fc00000u : normal;
  }
  // A subnormal is the normal number with the same fraction minus the least normal number.
  constexpr uint32_t kOne = 1u << 23;
  const float least_normal = __builtin_bit_cast(float, kRebias + kOne);
  const float less = __builtin_bit_cast(float, magnitude + kRebias + kOne) - least_normal;
  const uint32_t value = field == 0 ? __builtin_bit_cast(uint32_t, less) : normal;
  return value | (code >> (ExponentBits + FractionBits)) << 31;
}

PLUMB_HD constexpr uint32_t WidenF16(uint16_t code) { return WidenCode<5, 10>(code); }
PLUMB_HD constexpr uint32_t WidenE4M3(uint8_t code) { return WidenCode<4, 3>(code); }
PLUMB_HD constexpr uint32_t WidenE5M2(uint8_t code) { return WidenCode<5, 2>(code); }

}  // namespace plumbline
