// Tensor statistics by a warp, for tiles that are not ordinary, f64 and 8-bit formats, and tiles
// that were drawn for a closer look: four consecutive elements per lane and round, so that a scaled
// block of 32 elements is eight lanes and one of 128 the whole warp.
//
// A template over the warp, so that the same text is the device kernel (tensor/stats.cu) and, with
// 32 emulated lanes, a host program that tests compare with the CPU reference: the same bits
// everywhere. A Warp has
//   Var<T>             one T a lane, v[lane]
//   Each(f)            f(lane) for every lane this thread stands for (a device thread: its own)
//   Xor(v, mask)       a Var with v[lane ^ mask]; T of 32, 64 or 128 bits
// and a Sink, which is copied, adds up from any lane:
//   Exponent(index)    one value more, index as in TensorTotals but for words of 32 or 64 bits
//   Field(field)       one normal value of f32's exponent field more; 0 is of no account
//   Wide(which, v, exponent, negative)     v 2^exponent to one of the sums of TensorRaw
//   Count(i, n)  AddDigest(digest)  Extremes(highest, lowest_flipped)     at the end of a span
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/core/widen.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/digest.h"
#include "kernels/tensor/fit.h"
#include "kernels/tensor/look.h"
#include "kernels/tensor/tile_lanes.h"
#include "kernels/tensor/tile_sums.h"

namespace plumbline {
namespace internal {

// Returns raw elements as words of W.
template <typename W, typename Raw>
PLUMB_HD constexpr W WordOf(Raw raw, DType t) {
  if constexpr (sizeof(W) == sizeof(Raw)) {
    return raw;
  } else if constexpr (sizeof(Raw) == 2) {
    return t == DType::kBF16 ? static_cast<uint32_t>(raw) << 16 : WidenF16(raw);
  } else {
    return t == DType::kE4M3 ? WidenE4M3(raw) : WidenE5M2(raw);
  }
}

template <typename T>
PLUMB_HD constexpr T Larger(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
PLUMB_HD constexpr T Smaller(T a, T b) {
  return a < b ? a : b;
}

}  // namespace internal

// The digest of a tile: the words of a tensor with their keys.
class TileDigest {
 public:
  PLUMB_DEVICE explicit TileDigest(const DigestTable* table) : table_(table) {}

  // Sets the digest's block to that of byte `at` of the tensor, for the words that follow.
  PLUMB_DEVICE void Enter(int64_t at) {
    const int64_t block = at / kDigestBlockBytes;
    if (block == block_) return;
    block_ = block;
    key_ = DigestBlockKey(static_cast<uint64_t>(block));
  }
  PLUMB_DEVICE void Add(uint64_t word, int64_t index, Digest* digest) const {
    const auto place = static_cast<uint64_t>(index) % kDigestBlockWords;
    digest->low += DigestWord(word, table_->low[place] ^ key_.low);
    digest->high += DigestWord(word, table_->high[place] ^ key_.high);
  }

 private:
  const DigestTable* table_;
  int64_t block_ = -1;
  DigestKey key_{};
};

template <typename Warp, typename Sink, typename W, typename Raw>
class TileMeasure {
  template <typename T>
  using Var = typename Warp::template Var<T>;

 public:
  // The figures to compute: `exact`: counts, extremes and sums; `looks`: exponents and fits.
  struct Task {
    bool exact;
    bool looks;
    bool digest;
  };

  PLUMB_DEVICE TileMeasure(const TensorItem& item, const DigestTable* table, const Sink& sink)
      : item_(item),
        digest_(table),
        sink_(sink),
        least_normal_(BitsNotBelow<W>(PowerOfTwo(FormatOf(item.dtype).min_exponent))),
        vectors_(item),
        sums_(sink) {}

  // Measures elements [first, first + kTileElements), as far as they exist.
  PLUMB_DEVICE void Measure(int64_t first, const Task& task) {
    static_assert(kTileElements % Vectors::kElements == 0 &&
                  Vectors::kElements % kRoundElements == 0);
    task_ = task;
    PLUMB_LOOP for (int64_t at = first; at < first + kTileElements; at += Vectors::kElements) {
      if (!task.exact && !task.digest && vectors_.Look(at, sink_, &lanes_)) continue;
      PLUMB_LOOP for (int64_t part = 0; part < Vectors::kElements; part += kRoundElements)
          Round(at + part);
    }
    if (task.exact) sums_.Flush();
  }

  // Gives the counts of the lanes to the sink.
  PLUMB_DEVICE void Finish() {
    PLUMB_LOOP for (int i = 0; i < kTensorCounts; ++i) {
      Warp::Each([&](int l) {
        if (lanes_[l].counts[i] != 0) sink_.Count(i, lanes_[l].counts[i]);
      });
    }
    if (task_.digest) Warp::Each([&](int l) { sink_.AddDigest(lanes_[l].digest); });
    if (!task_.exact) return;
    Var<uint64_t> highest;
    Var<uint64_t> lowest;
    Warp::Each([&](int l) {
      highest[l] = Widened(lanes_[l].highest);
      lowest[l] = Widened(lanes_[l].lowest_flipped);
    });
    const auto larger = [](uint64_t a, uint64_t b) { return internal::Larger(a, b); };
    highest = Reduced<Warp>(highest, larger);
    lowest = Reduced<Warp>(lowest, larger);
    Warp::Each([&](int l) {
      if (l == 0) sink_.Extremes(highest[l], lowest[l]);
    });
  }

 private:
  static constexpr int kM = WordFormat<W>::kFractionBits;
  static constexpr int64_t kRoundElements = int64_t{kTileLanes} * kLaneElements;
  using Vectors = Looks<Warp, Raw>;

  struct Lane {
    uint32_t counts[kTensorCounts];
    Digest digest;
    W highest;  // order keys, see TensorRaw
    W lowest_flipped;
  };
  struct Four {
    Raw v[kLaneElements];
  };

  PLUMB_DEVICE static uint64_t Widened(W key) {
    return static_cast<uint64_t>(key) << (64 - 8 * sizeof(W));
  }

  PLUMB_DEVICE void Round(int64_t first) {
    Var<Four> raw;
    Var<int> valid;
    Warp::Each([&](int l) {
      const int64_t at = first + l * kLaneElements;
      const int64_t left = item_.count - at;
      valid[l] = left <= 0 ? 0 : (left >= kLaneElements ? kLaneElements : static_cast<int>(left));
      raw[l] = Load(at, valid[l]);
    });
    if (task_.digest) AddDigests(raw, valid, first);
    struct Words {
      W w[kLaneElements];
    };
    Var<Words> words;
    Var<W> most;
    Var<W> least;
    Warp::Each([&](int l) {
      most[l] = 0;
      least[l] = static_cast<W>(~W{0});
      PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
        W& word = words[l].w[k];
        word = k < valid[l] ? Classified(internal::WordOf<W>(raw[l].v[k], item_.dtype), l) : W{0};
        const W m = word & kMagnitudeMask<W>;
        most[l] = internal::Larger(most[l], m);
        least[l] = internal::Smaller(least[l], static_cast<W>(m - 1));
      }
    });
    const auto larger = [](W a, W b) { return internal::Larger(a, b); };
    const auto smaller = [](W a, W b) { return internal::Smaller(a, b); };
    const Var<W> most_of_32 = Reduced<Warp>(most, larger, 8);
    const Var<W> least_of_32 = Reduced<Warp>(least, smaller, 8);
    const Var<W> most_of_128 = Reduced<Warp>(most_of_32, larger);
    const Var<W> least_of_128 = Reduced<Warp>(least_of_32, smaller);
    if (task_.exact) sums_.Raise(most_of_128);
    Warp::Each([&](int l) {
      const W* lane_words = words[l].w;
      if (task_.looks) {
        Fits(lane_words, most_of_128[l], least_of_128[l], &lanes_[l]);
        ScaledFits(lane_words, most_of_32[l], least_of_32[l], 0, &lanes_[l]);
        ScaledFits(lane_words, most_of_128[l], least_of_128[l], 1, &lanes_[l]);
      }
      if (task_.exact) sums_.Add(lane_words, l);
    });
  }

  PLUMB_DEVICE Four Load(int64_t at, int valid) const {
    const auto* data = static_cast<const Raw*>(item_.data);
    Four four{};
    if (valid == kLaneElements && item_.dense && item_.aligned) {
      struct alignas(sizeof(Raw) * kLaneElements) Aligned {
        Four four;
      };
      return reinterpret_cast<const Aligned*>(data + at)->four;
    }
    PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
      if (k >= valid) continue;
      four.v[k] = LoadRaw<Raw>(data, item_.dense ? at + k : OffsetOf(item_.axes, at + k));
    }
    return four;
  }

  PLUMB_CALLED static int64_t OffsetOf(const StridedAxes& axes, int64_t index) {
    return axes.Offset(index);
  }

  PLUMB_DEVICE void AddDigests(const Var<Four>& raw, const Var<int>& valid, int64_t first) {
    constexpr int kWordElements = 8 / static_cast<int>(sizeof(Raw));
    // All words of a round are in one block of the digest.
    static_assert(kDigestBlockWords * 8 % (kRoundElements * sizeof(Raw)) == 0);
    digest_.Enter(first * static_cast<int64_t>(sizeof(Raw)));
    Var<uint64_t> packed{};  // the last, or only, word of the lane's four elements
    Warp::Each([&](int l) {
      const int64_t at = first + l * kLaneElements;
      PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
        constexpr int kBits = 8 * static_cast<int>(sizeof(Raw));
        const int in_word = k % kWordElements;
        const auto bits = static_cast<uint64_t>(raw[l].v[k]) << (kBits * in_word % 64);
        packed[l] = in_word == 0 ? bits : packed[l] | bits;
        const bool ends = in_word == kWordElements - 1;
        if (ends && k - in_word < valid[l]) {
          digest_.Add(packed[l], (at + k) / kWordElements, &lanes_[l].digest);
        }
      }
    });
    if constexpr (kWordElements > kLaneElements) {  // two lanes make a word
      const Var<uint64_t> other = Warp::Xor(packed, 1);
      Warp::Each([&](int l) {
        if (l % 2 != 0 || valid[l] == 0) return;
        digest_.Add(packed[l] | other[l] << 32, (first + l * kLaneElements) / kWordElements,
                    &lanes_[l].digest);
      });
    }
  }

  // Counts an element; returns it, or 0 if it is not finite.
  PLUMB_DEVICE W Classified(W word, int l) {
    Lane& lane = lanes_[l];
    const W m = word & kMagnitudeMask<W>;
    const bool negative = word != m;
    if (m >= kInfinityBits<W>) {
      if (!task_.exact) return 0;
      const bool infinite = m == kInfinityBits<W>;
      lane.counts[kCountNan] += infinite ? 0 : 1;
      lane.counts[kCountPositiveInf] += infinite && !negative ? 1 : 0;
      lane.counts[kCountNegativeInf] += infinite && negative ? 1 : 0;
      return 0;
    }
    if (task_.looks && m != 0) sink_.Exponent(ExponentIndex(m));
    if (!task_.exact) return word;
    const W key = negative ? static_cast<W>(~word) : static_cast<W>(word | ~kMagnitudeMask<W>);
    lane.highest = internal::Larger(lane.highest, key);
    lane.lowest_flipped = internal::Larger(lane.lowest_flipped, static_cast<W>(~key));
    lane.counts[kCountZero] += m == 0 ? 1 : 0;
    lane.counts[kCountSubnormal] += static_cast<W>(m - 1) < least_normal_ - 1 ? 1 : 0;
    return word;
  }

  PLUMB_DEVICE static int ExponentIndex(W m) {
    const auto field = static_cast<int>(m >> kM);
    return field > 0 ? field - 1 + kM : TopBit(m);
  }
  PLUMB_CALLED static int TopBit(W m) {
    int top = 0;
    for (W rest = m >> 1; rest != 0; rest >>= 1) ++top;
    return top;
  }

  PLUMB_DEVICE void Fits(const W* words, W most, W least, Lane* lane) const {
    PLUMB_UNROLL for (int i = 0; i < kPlainFits; ++i) {
      const FitBounds<W> bounds = PlainBounds<W>(i);
      if (least < bounds.normal_from - 1) CountSmall(words, bounds, i, lane);
      if (most < bounds.saturated_from) continue;
      PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
        const W m = words[k] & kMagnitudeMask<W>;
        lane->counts[FitCount(i, kFitSaturated)] += m >= bounds.saturated_from ? 1 : 0;
      }
    }
  }

  template <typename V>
  PLUMB_DEVICE static void CountSmall(const V* words, const FitBounds<V>& bounds, int fit,
                                      Lane* lane) {
    PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
      const V less = static_cast<V>((words[k] & kMagnitudeMask<V>)-1);
      const bool small = less < bounds.normal_from - 1;
      const bool flushed = less < bounds.subnormal_from - 1;
      lane->counts[FitCount(fit, kFitFlushed)] += flushed ? 1 : 0;
      lane->counts[FitCount(fit, kFitSubnormal)] += small && !flushed ? 1 : 0;
    }
  }

  // For an element of a block so small that it is scaled up first. Returns one bit each: flushed in
  // e4m3, subnormal in e4m3, flushed in e5m2, subnormal in e5m2.
  PLUMB_CALLED static uint32_t TinyFits(W magnitude, W most) {
    const uint64_t less = ScaledUp(magnitude) - 1;
    const uint64_t top = ScaledUp(most);
    uint32_t bits = 0;
    for (int i = 0; i < 2; ++i) {
      const FitBounds<uint64_t> bounds =
          ScaledBounds<uint64_t>(i == 0 ? DType::kE4M3 : DType::kE5M2, top);
      const bool flushed = less < bounds.subnormal_from - 1;
      const bool small = less < bounds.normal_from - 1;
      bits |= (flushed ? 1u : (small ? 2u : 0u)) << (2 * i);
    }
    return bits;
  }

  // Counts the lane's part of a scaled block; `size`: 0 for blocks of 32, 1 of 128.
  PLUMB_DEVICE static void ScaledFits(const W* words, W most, W least, int size, Lane* lane) {
    if (most == 0) return;
    const int e4m3 = kPlainFits + size;
    const int e5m2 = e4m3 + 2;
    if (most >> kM < kLeastScalableField) {
      for (int k = 0; k < kLaneElements; ++k) {
        const uint32_t fits = TinyFits(words[k] & kMagnitudeMask<W>, most);
        lane->counts[FitCount(e4m3, kFitFlushed)] += fits & 1;
        lane->counts[FitCount(e4m3, kFitSubnormal)] += fits >> 1 & 1;
        lane->counts[FitCount(e5m2, kFitFlushed)] += fits >> 2 & 1;
        lane->counts[FitCount(e5m2, kFitSubnormal)] += fits >> 3 & 1;
      }
      return;
    }
    const FitBounds<W> bounds = ScaledBounds<W>(DType::kE4M3, most);
    if (least >= bounds.normal_from - 1) return;
    CountSmall(words, bounds, e4m3, lane);
    CountSmall(words, ScaledBounds<W>(DType::kE5M2, most), e5m2, lane);
  }

  const TensorItem& item_;
  Task task_{};
  TileDigest digest_;
  Sink sink_;
  W least_normal_;  // of the tensor's dtype
  Var<Lane> lanes_{};
  Vectors vectors_;
  TileSums<Warp, Sink, W> sums_;
};

// Does a warp's part of a tile of kSumTileBytes that has been measured already: looks at drawn
// tiles and, if it must be exact, counts and adds values one by one.
template <typename Warp, typename W, typename Raw, typename Sink>
PLUMB_CALLED void LookCloser(const TensorItem& item, int64_t first, int quarter, bool exact,
                             Sink sink) {
  using Measure = TileMeasure<Warp, Sink, W, Raw>;
  constexpr int64_t kWarps = 4;
  const int64_t end = internal::Smaller<int64_t>(
      item.count, first + kSpanBytes / static_cast<int64_t>(sizeof(Raw)));
  PLUMB_LOOP for (int64_t at = first + quarter * kTileElements; at < end;
                  at += kWarps * kTileElements) {
    const bool looks = item.whole || FitTileDrawn(at / kFitTile);
    if (!exact && !looks) continue;
    Measure measure(item, nullptr, sink);
    measure.Measure(at, {exact, looks, false});
    measure.Finish();
  }
}

}  // namespace plumbline
