// The exact sums of a tensor's values, magnitudes and squares in a warp: each lane adds its own as
// integers in units of the tile. They go to the sink when the tile ends or its unit rises. Warp and
// Sink are those of tensor/tile.h.
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/core/wide_sum.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/fit.h"
#include "kernels/tensor/tile_lanes.h"

namespace plumbline {

// Adds v 2^exponent to one of the sums, a WideKind. The sink is passed by value: one with an
// address would be in memory.
template <typename Sink>
PLUMB_DEVICE void GiveWide(Sink sink, int which, Int128 v, int exponent) {
  const bool negative = v < 0;
  if (v != 0) sink.Wide(which, static_cast<Uint128>(negative ? -v : v), exponent, negative);
}

// Adds a value that no lane's sum holds to all sums.
template <typename Sink>
PLUMB_CALLED void GiveValue(Sink sink, uint64_t significand, int exponent, bool negative) {
  if (significand == 0) return;
  const Uint128 wide = significand;
  sink.Wide(kWideSum, wide, exponent, negative);
  sink.Wide(kWideMagnitudes, wide, exponent, false);
  sink.Wide(kWideSquares, wide * wide, 2 * exponent, false);
}

// The distance of a value from the largest exponent so far in its tile up to which a lane's sums
// hold it: 24 bits and 32 below are 61 bits for 32 values, and 117 for their squares; 53 bits and 8
// below are 127 for the squares. Others are added one by one.
template <typename W>
struct SumWindow;
template <>
struct SumWindow<uint32_t> {
  static constexpr int kWindow = 32;
  using Signed = int64_t;
};
template <>
struct SumWindow<uint64_t> {
  static constexpr int kWindow = 8;
  using Signed = Int128;
};

template <typename Warp, typename Sink, typename W>
class TileSums {
  template <typename T>
  using Var = typename Warp::template Var<T>;

 public:
  PLUMB_DEVICE explicit TileSums(const Sink& sink) : sink_(sink) {}

  // Called before a round is added. `most`: its largest magnitude, on every lane.
  PLUMB_DEVICE void Raise(const Var<W>& most) {
    int top = 0;
    Warp::Each([&](int l) { top = Field(most[l]); });  // the same on every lane
    if (top > top_) {
      if (top_ != 0) Flush();
      top_ = top;
    }
  }

  // Adds lane l's words of the round; 0 replaces non-finite values.
  PLUMB_DEVICE void Add(const W* words, int l) {
    constexpr int kWindow = SumWindow<W>::kWindow;
    Sums* sums = &sums_[l];
    PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
      const W m = words[k] & kMagnitudeMask<W>;
      const bool negative = words[k] != m;
      const int field = Field(m);
      const W implied = m >> kM != 0 ? W{1} << kM : W{0};
      const auto significand = static_cast<uint64_t>((m & kFractionMask<W>) | implied);
      const int up = field - top_ + kWindow;
      if (up < 0) {
        GiveValue(sink_, significand, Unit(field), negative);
        continue;
      }
      const auto shifted = static_cast<typename SumWindow<W>::Signed>(significand) << up;
      sums->sum += negative ? -shifted : shifted;
      sums->magnitudes += shifted;
      sums->squares += (static_cast<Uint128>(significand) * significand) << (2 * up);
    }
  }

  // Adds up the lanes' sums and passes them to the sink. A lane's squares may fill 127 bits, so
  // their halves are added over the warp.
  PLUMB_DEVICE void Flush() {
    if (top_ == 0) return;
    Var<Int128> sum;
    Var<Int128> magnitudes;
    Var<Uint128> low;
    Var<Uint128> high;
    Warp::Each([&](int l) {
      sum[l] = sums_[l].sum;
      magnitudes[l] = sums_[l].magnitudes;
      low[l] = static_cast<uint64_t>(sums_[l].squares);
      high[l] = sums_[l].squares >> 64;
      sums_[l] = Sums{};
    });
    const auto added = [](auto a, auto b) { return a + b; };
    sum = Reduced<Warp>(sum, added);
    magnitudes = Reduced<Warp>(magnitudes, added);
    low = Reduced<Warp>(low, added);
    high = Reduced<Warp>(high, added);
    const int unit = Unit(top_) - SumWindow<W>::kWindow;
    Warp::Each([&](int l) {
      if (l == 0) GiveWide(sink_, kWideSum, sum[l], unit);
      if (l == 1) GiveWide(sink_, kWideMagnitudes, magnitudes[l], unit);
      if (l == 2) GiveWide(sink_, kWideSquares, static_cast<Int128>(low[l]), 2 * unit);
      if (l == 3) GiveWide(sink_, kWideSquares, static_cast<Int128>(high[l]), 2 * unit + 64);
    });
    top_ = 0;
  }

 private:
  static constexpr int kM = WordFormat<W>::kFractionBits;

  // A lane's part of the values of up to kTileRounds rounds, in units that top_ sets.
  struct Sums {
    typename SumWindow<W>::Signed sum;
    typename SumWindow<W>::Signed magnitudes;
    Uint128 squares;
  };

  // Returns the exponent field, 1 for subnormals too, and the exponent of its values' last bits.
  PLUMB_DEVICE static int Field(W magnitude) {
    const auto field = static_cast<int>(magnitude >> kM);
    return field > 0 ? field : 1;
  }
  PLUMB_DEVICE static int Unit(int field) { return field - WordFormat<W>::kBias - kM; }

  Sink sink_;
  Var<Sums> sums_{};
  int top_ = 0;  // exponent field of the sums' units; 0: none yet
};

}  // namespace plumbline
