// 8-bit formats: a tile's codes are counted, and all figures except digest, scaled fits and the
// drawn tiles' figures follow from the 256 counts, exactly. Host and device; Warp and Sink are
// those of tensor/tile.h, and a Sink also counts
//   Code(word, k)      one more element with the bits of the word's byte k
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/tile.h"
#include "kernels/tensor/tile_vectors.h"

namespace plumbline {

inline constexpr int kCodes = 256;

template <typename Warp, typename Sink>
class CodeTiles {
  using Vector = LaneVector<uint8_t>;

 public:
  PLUMB_DEVICE CodeTiles(const TensorItem& item, int quarter, const DigestTable* table,
                         const Sink& sink)
      : item_(item), sink_(sink), quarter_(quarter), vectors_(item, quarter, table) {}

  // Measures the quarter of the tile at element `first`.
  PLUMB_DEVICE void Measure(int64_t first, const TileKeys& keys) {
    if (vectors_.WholeAt(first)) {
      Rounds(first, keys);
    } else {
      const int blocks = vectors_.BlocksAt(first);
      PLUMB_LOOP for (int b = 0; b < blocks; ++b) PartBlock(first, b, keys);
    }
    LookCloser<Warp, uint32_t, uint8_t>(item_, first, quarter_, false, sink_);
  }

  PLUMB_DEVICE void Finish() { vectors_.Finish(sink_); }

 private:
  PLUMB_DEVICE void Rounds(int64_t first, const TileKeys& keys) {
    const auto own = vectors_.keys();  // by value, as in LeanTiles
    auto digest = vectors_.digest();
    typename Warp::template Var<const unsigned char*> from;
    Warp::Each([&](int l) { from[l] = vectors_.AddressAt(first, l); });
    PLUMB_LOOP for (int b = 0; b < kTileBlocks; b += kSumBlocks) {
      Warp::Each([&](int l) {
        Vector v[kSumBlocks];
        PLUMB_UNROLL for (int r = 0; r < kSumBlocks; ++r) {
          v[r] = Vector::Load(from[l] + r * kDigestBlockBytes);
        }
        from[l] += kSumRoundBytes;
        PLUMB_UNROLL for (int r = 0; r < kSumBlocks; ++r) {
          vectors_.AddDigest(v[r], keys.block[b + r], own[l], &digest[l]);
          PLUMB_UNROLL for (int k = 0; k < Vector::kValues; ++k)
              sink_.Code(v[r].word[k / 4], k % 4);
        }
      });
    }
    vectors_.digest() = digest;
  }

  PLUMB_CALLED void PartBlock(int64_t first, int b, const TileKeys& keys) {
    Warp::Each([&](int l) {
      const int64_t at = vectors_.ElementAt(first, b, l);
      const int valid = vectors_.ValidAt(at);
      const Vector v = vectors_.Load(at, valid, 0);
      vectors_.AddPartDigest(v, valid, keys.block[b], l);
      for (int k = 0; k < valid; ++k) sink_.Code(v.word[k / 4], k % 4);
    });
  }

  const TensorItem& item_;
  Sink sink_;
  int quarter_;
  TileVectors<Warp, uint8_t> vectors_;
};

// Adds `n` elements with one code to the figures of TensorRaw.
template <typename Sink>
PLUMB_CALLED void GiveCodes(Sink sink, DType t, uint32_t code, uint32_t n) {
  if (n == 0) return;
  const auto word = internal::WordOf<uint32_t>(static_cast<uint8_t>(code), t);
  const uint32_t m = word & kMagnitudeMask<uint32_t>;
  const bool negative = word != m;
  if (m >= kInfinityBits<uint32_t>) {
    const bool infinite = m == kInfinityBits<uint32_t>;
    sink.Count(!infinite ? kCountNan : (negative ? kCountNegativeInf : kCountPositiveInf), n);
    return;
  }
  const uint32_t key = negative ? ~word : word | 0x80000000u;
  sink.Extremes(uint64_t{key} << 32, uint64_t{~key} << 32);
  if (m == 0) return sink.Count(kCountZero, n);
  if (m < BitsNotBelow<uint32_t>(PowerOfTwo(FormatOf(t).min_exponent))) {
    sink.Count(kCountSubnormal, n);
  }
  // After widening, every code is normal.
  const FloatParts parts = PartsOf(__builtin_bit_cast(float, m));
  const uint64_t significand = parts.significand >> 29;
  const int exponent = parts.exponent + 29;
  const Uint128 values = static_cast<Uint128>(significand) * n;
  sink.Wide(kWideSum, values, exponent, negative);
  sink.Wide(kWideMagnitudes, values, exponent, false);
  sink.Wide(kWideSquares, values * significand, 2 * exponent, false);
}

}  // namespace plumbline
