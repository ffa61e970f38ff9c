// The order in which bf16, f16 and f32 are added up: written down, so that any processor, launch
// and number of threads gives the same bits. Host and device.
//
// A tile is 64 KiB of a tensor's dense bytes in C order; the last tile is padded with zeros. A
// round is four of its blocks of 2,048 bytes, and vector t of a block (16 bytes) belongs to thread
// t of
// 128. In a round a thread adds, for each place in its vectors, the four values (v0 + v1) +
// (v2 + v3), then the places by halves: ((p0 + p1) + (p2 + p3)) + ... Magnitudes likewise; squares
// of one place are fused, fma(v3, v3, fma(v2, v2, fma(v1, v1, v0 v0))). 16-bit values do so in f32,
// f32 ones in f64. A thread adds its eight rounds in f64, one after the other, and threads are
// added by halves as places are. Tiles' sums are added exactly (core/wide_sum.h) and rounded once.
//
// Error bound of a sum. With u = 2^-24 and v = 2^-53, each value passes at most 2 + 3 additions in
// f32 and 8 + 7 in f64, so a tile's sum differs from the exact one by at most
//   16-bit:  (5 u + 15 v) / (1 - (5 u + 15 v))  times the sum of magnitudes
//   f32:     (4 + 15) v / (1 - 19 v)            times the same
// (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2). A square
// passes three fused additions instead of two, and is rounded at most once: 7 u + 15 v and 21 v of
// the sum of squares. kSumError and the other constants are these bounds, rounded up. Tiles keep
// their bound when added, and the last rounding adds half an ulp.
//
// That holds where no square overflows and those that underflow are of no account: in *ordinary*
// tiles, whose values are all finite and, of bf16, below 2^61 with the largest at least 2^-50 (or
// all zeros). There 2^15 underflows of 2^-150 are below 2^-35 of the largest square, within the
// unit u that is to spare above. The values of all other tiles are added exactly, the finite ones.
// f64 and 8-bit formats have no tiles: their sums are exact everywhere.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "kernels/core/device_code.h"
#include "kernels/core/widen.h"
#include "kernels/tensor/digest.h"
#include "kernels/tensor/fit.h"

namespace plumbline {

inline constexpr int kSumTileBytes = 1 << 16;
inline constexpr int kSumVectorBytes = 16;
inline constexpr int kSumThreads = kDigestBlockBytes / kSumVectorBytes;
inline constexpr int kSumBlocks = 4;  // of a round
inline constexpr int kSumRoundBytes = kSumBlocks * kDigestBlockBytes;
inline constexpr int kSumRounds = kSumTileBytes / kSumRoundBytes;
static_assert(kSumThreads == 128 && kSumRounds == 8);

inline constexpr double kSumError16 = 6 * 0x1p-24;  // of the sum of magnitudes
inline constexpr double kSquaresError16 = 8 * 0x1p-24;
inline constexpr double kSumError32 = 20 * 0x1p-53;
inline constexpr double kSquaresError32 = 22 * 0x1p-53;

PLUMB_HD constexpr bool SummedByTiles(DType t) {
  return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16;
}

// The sums of a tile, of a thread or of a round.
struct OrderedSums {
  double sum;
  double magnitudes;
  double squares;
};

PLUMB_HD inline OrderedSums operator+(const OrderedSums& a, const OrderedSums& b) {
  return {a.sum + b.sum, a.magnitudes + b.magnitudes, a.squares + b.squares};
}

PLUMB_HD inline float FusedSquare(float x, float to) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(x, x, to);
#else
  return __builtin_fmaf(x, x, to);
#endif
}
// The square is exact, so one rounding equals two.
PLUMB_HD inline double FusedSquare(double x, double to) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(x, x, to);
#else
  return x * x + to;
#endif
}
PLUMB_HD inline float AbsOf(float x) {
#if defined(__CUDA_ARCH__)
  return fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}
PLUMB_HD inline double AbsOf(double x) { return AbsValue(x); }

// The values of a dtype in words of 32 bits. Raw: an element's bits; Real: the type in which a
// round adds; Value(word, k): value k of a word. kMost, kLeast: a tile is ordinary if its largest
// magnitude has bits below kMost, and not below kLeast unless it is zero.
struct BF16Values {
  using Raw = uint16_t;
  using Real = float;
  static constexpr DType kType = DType::kBF16;
  static constexpr uint32_t kMost = (127 + 61) << 7;
  static constexpr uint32_t kLeast = (127 - 50) << 7;
  static constexpr uint32_t kLeastNormal = 1 << 7;
  PLUMB_HD static float Value(uint32_t word, int k) {
    return __builtin_bit_cast(float, k == 0 ? word << 16 : word & 0xffff0000u);
  }
  PLUMB_HD static uint32_t Widened(uint32_t raw) { return raw << 16; }
};

struct F16Values {
  using Raw = uint16_t;
  using Real = float;
  static constexpr DType kType = DType::kF16;
  static constexpr uint32_t kMost = 0x7c00;
  static constexpr uint32_t kLeast = 1;
  static constexpr uint32_t kLeastNormal = 1 << 10;
  PLUMB_HD static float Value(uint32_t word, int k) {
#if defined(__CUDA_ARCH__)
    float x;
    if (k == 0) {
      asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, a;}" : "=f"(x) : "r"(word));
    } else {
      asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, b;}" : "=f"(x) : "r"(word));
    }
    return x;
#else
    return __builtin_bit_cast(float, WidenF16(static_cast<uint16_t>(k == 0 ? word : word >> 16)));
#endif
  }
  PLUMB_HD static uint32_t Widened(uint32_t raw) { return WidenF16(static_cast<uint16_t>(raw)); }
};

struct F32Values {
  using Raw = uint32_t;
  using Real = double;
  static constexpr DType kType = DType::kF32;
  static constexpr uint32_t kMost = 0x7f800000;
  static constexpr uint32_t kLeast = 1;
  static constexpr uint32_t kLeastNormal = 1 << 23;
  PLUMB_HD static double Value(uint32_t word, int) { return __builtin_bit_cast(float, word); }
  PLUMB_HD static uint32_t Widened(uint32_t raw) { return raw; }
};

// `most`: the bits of the tile's largest magnitude; a NaN's are above infinity's.
template <typename Values>
PLUMB_HD constexpr bool IsOrdinary(uint32_t most) {
  return most < Values::kMost && (most >= Values::kLeast || most == 0);
}

namespace internal {

template <typename Real>
struct PartSums {
  Real sum;
  Real magnitudes;
  Real squares;
};

// Adds places [first, first + n) of four vectors' words.
template <typename Values, int kN, typename Vector>
PLUMB_HD inline PartSums<typename Values::Real> PlacesOf(const Vector (&v)[kSumBlocks], int first) {
  if constexpr (kN > 1) {
    const auto a = PlacesOf<Values, kN / 2>(v, first);
    const auto b = PlacesOf<Values, kN / 2>(v, first + kN / 2);
    return {a.sum + b.sum, a.magnitudes + b.magnitudes, a.squares + b.squares};
  } else {
    constexpr int kInWord = 4 / static_cast<int>(sizeof(typename Values::Raw));
    typename Values::Real x[kSumBlocks];
    PLUMB_UNROLL for (int r = 0; r < kSumBlocks; ++r) {
      x[r] = Values::Value(v[r].word[first / kInWord], first % kInWord);
    }
    return {(x[0] + x[1]) + (x[2] + x[3]),
            (AbsOf(x[0]) + AbsOf(x[1])) + (AbsOf(x[2]) + AbsOf(x[3])),
            FusedSquare(x[3], FusedSquare(x[2], FusedSquare(x[1], x[0] * x[0])))};
  }
}

}  // namespace internal

// Adds a round of one thread: its vectors of four blocks, each with four words.
template <typename Values, typename Vector>
PLUMB_HD inline OrderedSums RoundSums(const Vector (&v)[kSumBlocks]) {
  constexpr int kPlaces = kSumVectorBytes / static_cast<int>(sizeof(typename Values::Raw));
  const auto part = internal::PlacesOf<Values, kPlaces>(v, 0);
  return {part.sum, part.magnitudes, part.squares};
}

}  // namespace plumbline
