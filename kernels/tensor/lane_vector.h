// Sixteen bytes of elements in a lane of a device: four words, with two values each for 16-bit
// formats, which are compared in parallel. Host and device.
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/tensor/fit.h"

namespace plumbline {

// `Raw`: uint16_t or uint32_t. For each value: m, the bits of its magnitude, and less = m - 1. For
// zero, less is the largest number that fits, so that comparisons find the non-zero values.
template <typename Raw>
struct alignas(16) LaneVector {
  static constexpr int kWords = 4;
  static constexpr int kBits = 8 * static_cast<int>(sizeof(Raw));
  static constexpr int kValues = 128 / kBits;
  static constexpr uint32_t kOnes = kBits == 16 ? 0x00010001u : 1u;
  static constexpr uint32_t kTops = kOnes << (kBits - 1);
  static constexpr uint32_t kMask = ~kTops;  // of magnitudes
  static constexpr uint32_t kLargest = kMask & ((uint64_t{1} << kBits) - 1);

  uint32_t word[kWords];

  // Loads in one instruction; `from` is aligned, and no thread writes there meanwhile.
  PLUMB_HD static LaneVector Load(const void* from) {
#if defined(__CUDA_ARCH__)
    const uint4 words = __ldg(static_cast<const uint4*>(from));
    return {{words.x, words.y, words.z, words.w}};
#else
    return *static_cast<const LaneVector*>(from);
#endif
  }

  // Returns the f32 bits of value k.
  PLUMB_HD uint32_t Value(int k) const {
    if constexpr (kBits == 32) {
      return word[k];
    } else {
      return k % 2 == 0 ? word[k / 2] << 16 : word[k / 2] & 0xffff0000u;
    }
  }
  PLUMB_HD LaneVector Magnitudes() const {
    LaneVector out;
    PLUMB_UNROLL for (int i = 0; i < kWords; ++i) out.word[i] = word[i] & kMask;
    return out;
  }
  // Of magnitudes.
  PLUMB_HD LaneVector Less() const {
    LaneVector out;
    PLUMB_UNROLL for (int i = 0; i < kWords; ++i) out.word[i] = (word[i] + kMask) & kMask;
    return out;
  }

  // Returns the number of values not below `bound` <= kLargest + 1, of magnitudes or of the result
  // of Less(). Each word counts its values in separate bits.
  PLUMB_HD uint32_t CountFrom(uint32_t bound) const {
    const uint32_t lift = (kLargest + 1 - bound) * kOnes;  // moves those to the top bit, no further
    uint32_t bits = word[0] + lift;
    uint32_t taken = kTops;
    PLUMB_UNROLL for (int i = 1; i < kWords; ++i) {
      bits = (bits & taken) | ((word[i] + lift) >> i & ~taken);
      taken |= kTops >> i;
    }
    return static_cast<uint32_t>(BitsSet(bits & taken));
  }

  PLUMB_HD uint32_t Largest() const {
    return Folded(Larger(Larger(word[0], word[1]), Larger(word[2], word[3])));
  }
  PLUMB_HD uint32_t Smallest() const {
    LaneVector flipped;
    PLUMB_UNROLL for (int i = 0; i < kWords; ++i) flipped.word[i] = kMask - word[i];
    return kLargest - flipped.Largest();
  }

  // Returns the larger one of each half.
  PLUMB_HD static uint32_t Larger(uint32_t a, uint32_t b) {
    if constexpr (kBits == 32) {
      return a > b ? a : b;
    } else {
      return LargerHalves(a, b);
    }
  }
  PLUMB_HD static uint32_t Smaller(uint32_t a, uint32_t b) {
    if constexpr (kBits == 32) {
      return a < b ? a : b;
    } else {
#if defined(__CUDA_ARCH__)
      return __vminu2(a, b);
#else
      return ~LargerHalves(~a, ~b);
#endif
    }
  }
  PLUMB_HD static uint32_t LargerHalves(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __vmaxu2(a, b);
#else
    const uint32_t low = (a & 0xffffu) > (b & 0xffffu) ? a : b;
    const uint32_t high = (a >> 16) > (b >> 16) ? a : b;
    return (low & 0xffffu) | (high & 0xffff0000u);
#endif
  }

  // Does the same for signed integers.
  PLUMB_HD static uint32_t LargerSigned(uint32_t a, uint32_t b) {
    if constexpr (kBits == 32) {
      return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? a : b;
    } else {
#if defined(__CUDA_ARCH__)
      return __vmaxs2(a, b);
#else
      return LargerHalves(a ^ kTops, b ^ kTops) ^ kTops;
#endif
    }
  }
  PLUMB_HD static uint32_t FoldedSigned(uint32_t v) {
    if constexpr (kBits == 32) return v;
    return Folded(v ^ kTops) ^ (1u << (kBits - 1));
  }

  // Returns the larger, or smaller, of a word's values.
  PLUMB_HD static uint32_t Folded(uint32_t v) {
    if constexpr (kBits == 32) return v;
    return (v & 0xffffu) > (v >> 16) ? v & 0xffffu : v >> 16;
  }
  PLUMB_HD static uint32_t FoldedLeast(uint32_t v) {
    if constexpr (kBits == 32) return v;
    return (v & 0xffffu) < (v >> 16) ? v & 0xffffu : v >> 16;
  }
};

// The largest magnitude of some values and the smallest other than zero, in as few words as
// possible for the exchange between lanes: for bf16 one word with two halves.
template <typename Raw>
struct LaneExtent {
  using Vector = LaneVector<Raw>;
  static constexpr int kParts = sizeof(Raw) == 2 ? 1 : 2;

  uint32_t part[kParts];

  PLUMB_HD static LaneExtent Of(const Vector& magnitudes, const Vector& less) {
    const uint32_t most = magnitudes.Largest();
    const uint32_t flipped = Vector::kLargest - less.Smallest();
    LaneExtent extent;
    extent.part[0] = kParts == 1 ? flipped << 16 | most : most;
    if constexpr (kParts == 2) extent.part[1] = flipped;
    return extent;
  }
  PLUMB_HD uint32_t Most() const { return kParts == 1 ? part[0] & 0xffffu : part[0]; }
  // The smallest magnitude minus one, as in Less(), or kLargest if all are zeros.
  PLUMB_HD uint32_t Least() const {
    return Vector::kLargest - (kParts == 1 ? part[0] >> 16 : part[kParts - 1]);
  }
};

}  // namespace plumbline
