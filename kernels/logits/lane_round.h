// Figures of a whole round of a device lane (lane.h): its largest logits and differences, with as
// few operations as possible.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/logits/core.h"
#include "kernels/logits/lane_math.h"

namespace plumbline {

// The largest of a round's bf16, in two parts per side: each the larger of four.
struct PackedMost {
  uint32_t side[2];
};
struct NotPacked {};

// The reference in the form of rounds. `limit`: bound of the squares of an ordinary round.
template <typename Real>
struct LaneReference {
  Real train, rollout, limit;

  // Converts a reference of f32 logits.
  PLUMB_HD explicit LaneReference(const LogitReference& r)
      : train(static_cast<Real>(r.train)),
        rollout(static_cast<Real>(r.rollout)),
        limit(static_cast<Real>(1e18) - (train * train + rollout * rollout)) {}
  PLUMB_HD LogitReference whole() const { return {train, rollout, true}; }
};

namespace internal {

// Forces the value to be computed here: if a compiler postpones a sum, it computes the terms twice.
PLUMB_HD inline void Keep(float* sum) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+f"(*sum));
#else
  (void)sum;
#endif
}
PLUMB_HD inline void Keep(double* /*sum*/) {}

template <typename Int>
PLUMB_HD inline Int Largest(Int a, Int b, Int c) {
#if defined(__CUDA_ARCH__)
  if constexpr (Int(-1) < Int(0)) {
    return __vimax3_s32(a, b, c);
  } else {
    return __vimax3_u32(a, b, c);
  }
#else
  return std::max(a, std::max(b, c));
#endif
}

// The largest and the least difference of a row. The largest is not negative and the least is not
// positive, because the difference at the reference is zero. So floats can be compared as integers:
// as signed words a positive float is larger; as unsigned words a negative float that is farther
// from zero is larger.
template <typename Real>
class DeltaRange {
 public:
  PLUMB_HD Real most() const { return most_; }
  PLUMB_HD Real least() const { return least_; }
  // Takes a round without NaN; returns true if all differences are within `small` of zero.
  PLUMB_HD bool Take(const Real* d, Real small) {
    bool near = true;
    for (int i = 0; i < kLogitVector; ++i) {
      most_ = LargerOf(most_, d[i]);
      least_ = SmallerOf(least_, d[i]);
      near &= d[i] <= small && d[i] >= -small;
    }
    return near;
  }

 private:
  Real most_ = 0, least_ = 0;
};

template <>
class DeltaRange<float> {
 public:
  PLUMB_HD float most() const { return __builtin_bit_cast(float, most_); }
  PLUMB_HD float least() const { return __builtin_bit_cast(float, least_); }
  PLUMB_HD bool Take(const float* d, float small) {
    const int32_t most = LargestOf<int32_t>(d);
    const uint32_t least = LargestOf<uint32_t>(d);
    most_ = most > most_ ? most : most_;
    least_ = least > least_ ? least : least_;
    return most <= __builtin_bit_cast(int32_t, small) &&
           least <= __builtin_bit_cast(uint32_t, -small);
  }

 private:
  template <typename Int>
  PLUMB_HD static Int LargestOf(const float* d) {
    Int bits[kLogitVector];
    PLUMB_UNROLL for (int i = 0; i < kLogitVector; ++i) bits[i] = __builtin_bit_cast(Int, d[i]);
    static_assert(kLogitVector == 8);
    const Int most = Largest(Largest(bits[0], bits[1], bits[2]), bits[3], bits[4]);
    return Largest(Largest(most, bits[5], bits[6]), bits[7], bits[7]);
  }

  int32_t most_ = 0;
  uint32_t least_ = 0x80000000u;  // -0
};

// Returns the larger of two bf16, in both halves of a word.
PLUMB_HD inline uint32_t LargerBF16(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t larger;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
#else
  const auto half = [](uint32_t x, uint32_t y) {
    const auto p = __builtin_bit_cast(float, x << 16), q = __builtin_bit_cast(float, y << 16);
    return q > p || p != p ? y & 0xffffu : x & 0xffffu;
  };
  return half(a >> 16, b >> 16) << 16 | half(a & 0xffffu, b & 0xffffu);
#endif
}

// Returns the larger half.
PLUMB_HD inline float LargerHalf(uint32_t word) {
  return LargerOf(__builtin_bit_cast(float, word << 16),
                  __builtin_bit_cast(float, word & 0xffff0000u));
}
// Returns the largest bf16 that is not above z, twice. z is finite.
PLUMB_HD inline uint32_t BothBF16Below(float z) {
  const auto bits = __builtin_bit_cast(uint32_t, z);
  const uint32_t high = (z < 0 ? bits + 0xffffu : bits) & 0xffff0000u;
  return high | high >> 16;
}

}  // namespace internal
}  // namespace plumbline
