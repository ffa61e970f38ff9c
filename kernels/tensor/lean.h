// Measures a tile of bf16, f16 or f32 (tensor/sum_order.h) with four warps in one read: sums,
// extremes, digest, and whether the tile needs a second pass. Warp and Sink are those of
// tensor/tile.h.
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/lane_vector.h"
#include "kernels/tensor/sum_order.h"
#include "kernels/tensor/tile.h"
#include "kernels/tensor/tile_lanes.h"
#include "kernels/tensor/tile_vectors.h"

namespace plumbline {

// A warp's figures of its quarter of a tile, the same on every lane. Magnitudes are bits.
struct QuarterFigures {
  OrderedSums sums;
  uint32_t most;
  uint32_t least;
};

// Figures of all four. `exact`: the tile is not ordinary, so values are added exactly and counted
// one by one.
struct TileVerdict {
  OrderedSums sums;
  bool exact;
  bool small;  // zeros or subnormals must be counted
};

template <typename Values>
PLUMB_DEVICE TileVerdict Judge(const QuarterFigures* quarters) {
  TileVerdict verdict;
  verdict.sums = (quarters[0].sums + quarters[1].sums) + (quarters[2].sums + quarters[3].sums);
  uint32_t most = quarters[0].most;
  uint32_t least = quarters[0].least;
  PLUMB_UNROLL for (int i = 1; i < kTileWarps; ++i) {
    most = most > quarters[i].most ? most : quarters[i].most;
    least = least < quarters[i].least ? least : quarters[i].least;
  }
  verdict.exact = !IsOrdinary<Values>(most);
  verdict.small = least < Values::kLeastNormal;
  return verdict;
}

// The extremes of words' values, from their bits alone. The largest signed integer is the largest
// value without a sign; the largest unsigned integer is the largest magnitude with a sign.
template <typename Raw>
struct LaneRange {
  using Vector = LaneVector<Raw>;
  static constexpr uint32_t kSign = uint32_t{1} << (Vector::kBits - 1);

  uint32_t high;   // with a sign
  uint32_t low;    // without
  uint32_t least;  // magnitude

  // Returns the extremes of no values.
  PLUMB_HD static LaneRange None() { return {Vector::kTops, 0, Vector::kMask}; }
  PLUMB_HD void Add(uint32_t word) {
    high = Vector::LargerSigned(high, word);
    low = Vector::Larger(low, word);
    least = Vector::Smaller(least, word & Vector::kMask);
  }
  // Combines a word's two values into one.
  PLUMB_HD LaneRange Folded() const {
    return {Vector::FoldedSigned(high), Vector::Folded(low), Vector::FoldedLeast(least)};
  }
  // For folded ranges.
  PLUMB_HD bool Empty() const { return high == kSign && low < kSign; }
  PLUMB_HD uint32_t Most() const {
    const uint32_t positive = high < kSign ? high : 0;
    const uint32_t negative = low >= kSign ? low - kSign : 0;
    return positive > negative ? positive : negative;
  }
};

template <typename Warp, typename Sink, typename Values>
class LeanTiles {
  template <typename T>
  using Var = typename Warp::template Var<T>;
  using Raw = typename Values::Raw;
  using Vector = LaneVector<Raw>;
  using Range = LaneRange<Raw>;

 public:
  static constexpr int64_t kElements = kSumTileBytes / sizeof(Raw);

  PLUMB_DEVICE LeanTiles(const TensorItem& item, int quarter, const DigestTable* table,
                         const Sink& sink)
      : item_(item), sink_(sink), quarter_(quarter), vectors_(item, quarter, table) {}

  // Measures the quarter of the tile at element `first`.
  PLUMB_DEVICE QuarterFigures Measure(int64_t first, const TileKeys& keys) {
    if (vectors_.WholeAt(first)) {
      Rounds(first, keys);
    } else {
      Warp::Each([&](int l) {
        sums_[l] = OrderedSums{};
        range_[l] = Range::None();
      });
      // A round without elements can be skipped: it would add zeros, and the sums are not negative
      // zeros.
      const int blocks = vectors_.BlocksAt(first);
      PLUMB_LOOP for (int b = 0; b < blocks; b += kSumBlocks) PartRound(first, b, keys);
    }
    return Figures();
  }

  // Combines all four quarters, and makes a second pass if the tile needs one.
  PLUMB_DEVICE void Settle(int64_t first, const TileVerdict& verdict) {
    if (!verdict.exact) {
      Warp::Each([&](int l) {
        if (quarter_ != 0 || l > 2) return;
        const double v = l == 0   ? verdict.sums.sum
                         : l == 1 ? verdict.sums.magnitudes
                                  : verdict.sums.squares;
        const FloatParts parts = PartsOf(v);
        if (v != 0) sink_.Wide(l, parts.significand, parts.exponent, parts.negative);
      });
      GiveExtremes();
      if (verdict.small) CountSmall(first);
    }
    LookCloser<Warp, uint32_t, Raw>(item_, first, quarter_, verdict.exact, sink_);
  }

  // Gives the digest of all tiles so far to the sink.
  PLUMB_DEVICE void Finish() { vectors_.Finish(sink_); }

 private:
  static_assert(kWideSum == 0 && kWideMagnitudes == 1 && kWideSquares == 2);

  PLUMB_DEVICE void Rounds(int64_t first, const TileKeys& keys) {
    // Passes copies, because data whose address a called function gets are not in registers.
    const auto own = vectors_.keys();
    auto digest = vectors_.digest();
    Var<OrderedSums> sums{};
    Var<Range> range;
    Var<const unsigned char*> from;
    Warp::Each([&](int l) {
      from[l] = vectors_.AddressAt(first, l);
      range[l] = Range::None();
    });
    PLUMB_LOOP for (int b = 0; b < kTileBlocks; b += kSumBlocks) {
      Warp::Each([&](int l) {
        Vector v[kSumBlocks];
        PLUMB_UNROLL for (int r = 0; r < kSumBlocks; ++r) {
          v[r] = Vector::Load(from[l] + r * kDigestBlockBytes);
        }
        from[l] += kSumRoundBytes;
        PLUMB_UNROLL for (int r = 0; r < kSumBlocks; ++r) {
          vectors_.AddDigest(v[r], keys.block[b + r], own[l], &digest[l]);
          PLUMB_UNROLL for (int i = 0; i < Vector::kWords; ++i) range[l].Add(v[r].word[i]);
        }
        sums[l] = sums[l] + RoundSums<Values>(v);
      });
    }
    vectors_.digest() = digest;
    sums_ = sums;
    range_ = range;
  }

  // Handles a tile that ends early or is not aligned in vectors. Absent elements are zero, except
  // for the extremes, which use the tile's first value instead.
  PLUMB_CALLED void PartRound(int64_t first, int b, const TileKeys& keys) {
    Warp::Each([&](int l) {
      Vector v[kSumBlocks];
      for (int r = 0; r < kSumBlocks; ++r) {
        const int64_t at = vectors_.ElementAt(first, b + r, l);
        const int valid = vectors_.ValidAt(at);
        v[r] = vectors_.Load(at, valid, 0);
        if (valid == 0) continue;
        vectors_.AddPartDigest(v[r], valid, keys.block[b + r], l);
        const Raw filler = valid < Vector::kValues ? vectors_.RawAt(first) : Raw{0};
        const Vector filled = vectors_.Load(at, valid, filler);
        for (int i = 0; i < Vector::kWords; ++i) range_[l].Add(filled.word[i]);
      }
      sums_[l] = sums_[l] + RoundSums<Values>(v);
    });
  }

  PLUMB_DEVICE QuarterFigures Figures() {
    Var<uint32_t> most;
    Var<uint32_t> least;
    Var<double> sums[3];
    Warp::Each([&](int l) {
      range_[l] = range_[l].Folded();
      most[l] = range_[l].Most();
      least[l] = range_[l].least;
      sums[0][l] = sums_[l].sum;
      sums[1][l] = sums_[l].magnitudes;
      sums[2][l] = sums_[l].squares;
    });
    most = Reduced<Warp>(most, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
    least = Reduced<Warp>(least, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
    for (Var<double>& v : sums) v = Reduced<Warp>(v, [](double a, double b) { return a + b; });
    QuarterFigures out{};
    Warp::Each([&](int l) {  // the same on every lane
      out = {{sums[0][l], sums[1][l], sums[2][l]}, most[l], least[l]};
    });
    return out;
  }

  PLUMB_DEVICE void GiveExtremes() {
    Var<uint32_t> highest;
    Var<uint32_t> lowest;
    Warp::Each([&](int l) {
      const Range& r = range_[l];
      const uint32_t top = r.high < Range::kSign ? r.high : r.least | Range::kSign;
      const uint32_t bottom = r.low >= Range::kSign ? r.low : r.least;
      highest[l] = r.Empty() ? 0 : KeyOf(top);
      lowest[l] = r.Empty() ? 0 : ~KeyOf(bottom);
    });
    const auto larger = [](uint32_t a, uint32_t b) { return a > b ? a : b; };
    highest = Reduced<Warp>(highest, larger);
    lowest = Reduced<Warp>(lowest, larger);
    Warp::Each([&](int l) {
      if (l == 0) sink_.Extremes(uint64_t{highest[l]} << 32, uint64_t{lowest[l]} << 32);
    });
  }

  // Returns the order key of an element's bits.
  PLUMB_DEVICE static uint32_t KeyOf(uint32_t raw) {
    const uint32_t key = Values::Widened(raw & (Range::kSign - 1)) | 0x80000000u;
    return raw >= Range::kSign ? ~key : key;
  }

  // Counts the quarter's zeros and subnormals: a second read of the same data.
  PLUMB_CALLED void CountSmall(int64_t first) {
    Warp::Each([&](int l) {
      uint32_t zeros = 0;
      uint32_t subnormals = 0;
      PLUMB_LOOP for (int b = 0; b < vectors_.BlocksAt(first); ++b) {
        const int64_t at = vectors_.ElementAt(first, b, l);
        const int valid = vectors_.ValidAt(at);
        if (valid == 0) continue;
        const Vector m = vectors_.Load(at, valid, 0).Magnitudes();
        const uint32_t none = Vector::kValues - m.CountFrom(1);
        zeros += none - static_cast<uint32_t>(Vector::kValues - valid);
        subnormals += Vector::kValues - m.CountFrom(Values::kLeastNormal) - none;
      }
      if (zeros != 0) sink_.Count(kCountZero, zeros);
      if (subnormals != 0) sink_.Count(kCountSubnormal, subnormals);
    });
  }

  const TensorItem& item_;
  Sink sink_;
  int quarter_;
  TileVectors<Warp, Raw> vectors_;
  Var<OrderedSums> sums_{};
  Var<Range> range_{};
};

}  // namespace plumbline
