// Tensor statistics as a warp measures them: tiles of 1,024 elements, four consecutive ones a lane
// and round, so that a scaled block of 32 elements is eight lanes and one of 128 the whole warp.
//
// A template over the warp, so that the same text is the device kernel (tensor_stats.cu) and, with
// 32 emulated lanes, a host program that tests compare with the host twin: the same bits
// everywhere. A Warp has
//   Var<T>             one T a lane, v[lane]
//   Each(f)            f(lane) for every lane this thread stands for (a device thread: its own)
//   Xor(v, mask)       a Var with v[lane ^ mask]; T of 32, 64 or 128 bits
// and a Sink adds up, from any lane:
//   Exponent(index)    one value more, index as in TensorTotals but for words of 32 or 64 bits
//   Wide(which, v, exponent, negative)     v 2^exponent to one of the sums of TensorRaw
//   Count(i, n)  AddDigest(digest)  Extremes(highest, lowest_flipped)     at the end of a span
#pragma once

#include <cstdint>

#include "kernels/device_code.h"
#include "kernels/tensor_batch.h"
#include "kernels/tensor_digest.h"
#include "kernels/tensor_fit.h"
#include "kernels/tensor_widen.h"

namespace plumbline {

inline constexpr int kTileLanes = 32;
inline constexpr int kLaneElements = 4;  // a round
inline constexpr int kTileRounds = 8;
inline constexpr int kTileElements = kTileLanes * kLaneElements * kTileRounds;

// How far below the largest exponent so far in its tile a value may lie so that a lane's sums hold
// it: 24 bits and 32 below are 61 bits for 32 values, and 117 for their squares; 53 bits and 8
// below are 127 for the squares. Others are added one by one.
template <typename W>
struct TileSums;
template <>
struct TileSums<uint32_t> {
  static constexpr int kWindow = 32;
  using Signed = int64_t;
};
template <>
struct TileSums<uint64_t> {
  static constexpr int kWindow = 8;
  using Signed = Int128;
};

namespace internal {

// Raw elements as words of W.
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

template <typename Warp, typename Sink, typename W, typename Raw>
class TileMeasure {
  template <typename T>
  using Var = typename Warp::template Var<T>;

 public:
  PLUMB_DEVICE TileMeasure(const TensorItem& item, const DigestTable* table, Sink* sink)
      : item_(item),
        table_(table),
        sink_(sink),
        least_normal_(BitsNotBelow<W>(PowerOfTwo(FormatOf(item.dtype).min_exponent))) {}

  // Elements [first, first + kTileElements), as far as there are.
  PLUMB_DEVICE void Measure(int64_t first) {
    for (int round = 0; round < kTileRounds; ++round) {
      Round(first + round * kTileLanes * kLaneElements);
    }
    FlushSums();
  }

  // What the lanes counted, to the sink.
  PLUMB_DEVICE void Finish() {
    PLUMB_UNROLL for (int i = 0; i < kTensorCounts; ++i) {
      Var<uint64_t> n;
      Warp::Each([&](int l) { n[l] = lanes_[l].counts[i]; });
      const Var<uint64_t> sum = Reduced(n, [](uint64_t a, uint64_t b) { return a + b; });
      Warp::Each([&](int l) {
        if (l == 0 && sum[l] != 0) sink_->Count(i, sum[l]);
      });
    }
    Warp::Each([&](int l) {
      sink_->AddDigest(lanes_[l].digest);
      sink_->Extremes(Widened(lanes_[l].highest), Widened(lanes_[l].lowest_flipped));
    });
  }

 private:
  static constexpr int kM = WordFormat<W>::kFractionBits;
  static constexpr int kPlainFits = 4;  // of kFormatFitTargets; the scaled ones follow

  struct Lane {
    uint32_t counts[kTensorCounts];
    Digest digest;
    W highest;  // order keys, see TensorRaw
    W lowest_flipped;
  };
  // A lane's part of the values of up to kTileRounds rounds, in units that top_ sets.
  struct Sums {
    typename TileSums<W>::Signed sum;
    typename TileSums<W>::Signed magnitudes;
    Uint128 squares;
  };
  struct Four {
    Raw v[kLaneElements];
  };

  PLUMB_DEVICE static uint64_t Widened(W key) {
    return static_cast<uint64_t>(key) << (64 - 8 * sizeof(W));
  }

  template <typename T, typename F>
  PLUMB_DEVICE static Var<T> Reduced(Var<T> v, F f, int lanes = kTileLanes) {
    for (int mask = 1; mask < lanes; mask *= 2) {
      const Var<T> other = Warp::Xor(v, mask);
      Warp::Each([&](int l) { v[l] = f(v[l], other[l]); });
    }
    return v;
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
    AddDigests(raw, valid, first);
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
    const Var<W> most_of_32 = Reduced(most, larger, 8);
    const Var<W> least_of_32 = Reduced(least, smaller, 8);
    const Var<W> most_of_128 = Reduced(most_of_32, larger);
    const Var<W> least_of_128 = Reduced(least_of_32, smaller);
    int top = 0;
    Warp::Each([&](int l) { top = Field(most_of_128[l]); });  // the same on every lane
    if (top > top_) {
      if (top_ != 0) FlushSums();
      top_ = top;
    }
    Warp::Each([&](int l) {
      const W* lane_words = words[l].w;
      Fits(lane_words, most_of_128[l], least_of_128[l], &lanes_[l]);
      ScaledFits(lane_words, most_of_32[l], least_of_32[l], 0, &lanes_[l]);
      ScaledFits(lane_words, most_of_128[l], least_of_128[l], 1, &lanes_[l]);
      AddWords(lane_words, &sums_[l]);
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
      four.v[k] = LoadRaw<Raw>(data, item_.dense ? at + k : item_.axes.Offset(at + k));
    }
    return four;
  }

  PLUMB_DEVICE void Hash(uint64_t word, int64_t index, Lane* lane) const {
    const auto place = static_cast<uint64_t>(index) % kDigestBlockWords;
    lane->digest.low += DigestWord(word, table_->low[place] ^ block_key_.low);
    lane->digest.high += DigestWord(word, table_->high[place] ^ block_key_.high);
  }

  // The words of a round lie in one block of the digest.
  PLUMB_DEVICE void FindBlockKey(int64_t first) {
    static_assert(kDigestBlockWords * 8 % (kTileLanes * kLaneElements * sizeof(Raw)) == 0);
    const int64_t block = first * static_cast<int64_t>(sizeof(Raw)) / kDigestBlockBytes;
    if (block == block_) return;
    block_ = block;
    block_key_ = DigestBlockKey(static_cast<uint64_t>(block));
  }

  PLUMB_DEVICE void AddDigests(const Var<Four>& raw, const Var<int>& valid, int64_t first) {
    constexpr int kWordElements = 8 / static_cast<int>(sizeof(Raw));
    FindBlockKey(first);
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
          Hash(packed[l], (at + k) / kWordElements, &lanes_[l]);
        }
      }
    });
    if constexpr (kWordElements > kLaneElements) {  // two lanes make a word
      const Var<uint64_t> other = Warp::Xor(packed, 1);
      Warp::Each([&](int l) {
        if (l % 2 != 0 || valid[l] == 0) return;
        Hash(packed[l] | other[l] << 32, (first + l * kLaneElements) / kWordElements, &lanes_[l]);
      });
    }
  }

  // Counts an element; returns it, or 0 where it is not finite.
  PLUMB_DEVICE W Classified(W word, int l) {
    Lane& lane = lanes_[l];
    const W m = word & kMagnitudeMask<W>;
    const bool negative = word != m;
    if (m >= kInfinityBits<W>) {
      const bool infinite = m == kInfinityBits<W>;
      lane.counts[kCountNan] += infinite ? 0 : 1;
      lane.counts[kCountPositiveInf] += infinite && !negative ? 1 : 0;
      lane.counts[kCountNegativeInf] += infinite && negative ? 1 : 0;
      return 0;
    }
    const W key = negative ? static_cast<W>(~word) : static_cast<W>(word | ~kMagnitudeMask<W>);
    lane.highest = internal::Larger(lane.highest, key);
    lane.lowest_flipped = internal::Larger(lane.lowest_flipped, static_cast<W>(~key));
    lane.counts[kCountZero] += m == 0 ? 1 : 0;
    lane.counts[kCountSubnormal] += static_cast<W>(m - 1) < least_normal_ - 1 ? 1 : 0;
    if (m != 0) sink_->Exponent(ExponentIndex(m));
    return word;
  }

  PLUMB_DEVICE static int ExponentIndex(W m) {
    const auto field = static_cast<int>(m >> kM);
    if (field > 0) return field - 1 + kM;
    int top = 0;
    for (uint64_t rest = m >> 1; rest != 0; rest >>= 1) ++top;
    return top;
  }

  // Of kFormatFitTargets[i], as constants in the code.
  PLUMB_DEVICE static FitBounds<W> PlainBounds(int i) {
    constexpr FitBounds<W> kF16 = BoundsOf<W>(DType::kF16);
    constexpr FitBounds<W> kBF16 = BoundsOf<W>(DType::kBF16);
    constexpr FitBounds<W> kE4M3 = BoundsOf<W>(DType::kE4M3);
    constexpr FitBounds<W> kE5M2 = BoundsOf<W>(DType::kE5M2);
    return i == 0 ? kF16 : (i == 1 ? kBF16 : (i == 2 ? kE4M3 : kE5M2));
  }

  PLUMB_DEVICE void Fits(const W* words, W most, W least, Lane* lane) const {
    PLUMB_UNROLL for (int i = 0; i < kPlainFits; ++i) {
      const FitBounds<W> bounds = PlainBounds(i);
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

  // The lane's part of a scaled block; `size`: 0 for blocks of 32, 1 of 128.
  PLUMB_DEVICE static void ScaledFits(const W* words, W most, W least, int size, Lane* lane) {
    if (most == 0) return;
    const int e4m3 = kPlainFits + size;
    const int e5m2 = e4m3 + 2;
    if (most >> kM < kLeastScalableField) {
      uint64_t scaled[kLaneElements];
      for (int k = 0; k < kLaneElements; ++k) {
        scaled[k] = ScaledUp(static_cast<W>(words[k] & kMagnitudeMask<W>));
      }
      const uint64_t top = ScaledUp(most);
      CountSmall(scaled, ScaledBounds<uint64_t>(DType::kE4M3, top), e4m3, lane);
      CountSmall(scaled, ScaledBounds<uint64_t>(DType::kE5M2, top), e5m2, lane);
      return;
    }
    const FitBounds<W> bounds = ScaledBounds<W>(DType::kE4M3, most);
    if (least >= bounds.normal_from - 1) return;
    CountSmall(words, bounds, e4m3, lane);
    CountSmall(words, ScaledBounds<W>(DType::kE5M2, most), e5m2, lane);
  }

  PLUMB_DEVICE void AddWords(const W* words, Sums* sums) {
    constexpr int kWindow = TileSums<W>::kWindow;
    PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
      const W m = words[k] & kMagnitudeMask<W>;
      const bool negative = words[k] != m;
      const int field = Field(m);
      const W implied = m >> kM != 0 ? W{1} << kM : W{0};
      const auto significand = static_cast<uint64_t>((m & kFractionMask<W>) | implied);
      const int up = field - top_ + kWindow;
      if (up < 0) {
        AddOne(significand, Unit(field), negative);
        continue;
      }
      const auto shifted = static_cast<typename TileSums<W>::Signed>(significand) << up;
      sums->sum += negative ? -shifted : shifted;
      sums->magnitudes += shifted;
      sums->squares += (static_cast<Uint128>(significand) * significand) << (2 * up);
    }
  }

  // Adds the lanes' sums up and gives them to the sink. A lane's squares may fill 127 bits, so
  // their halves are added over the warp.
  PLUMB_DEVICE void FlushSums() {
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
    sum = Reduced(sum, added);
    magnitudes = Reduced(magnitudes, added);
    low = Reduced(low, added);
    high = Reduced(high, added);
    const int unit = Unit(top_) - TileSums<W>::kWindow;
    Warp::Each([&](int l) {
      const bool negative = sum[l] < 0;
      if (l == 0) Give(kWideSum, static_cast<Uint128>(negative ? -sum[l] : sum[l]), unit, negative);
      if (l == 1) Give(kWideMagnitudes, static_cast<Uint128>(magnitudes[l]), unit, false);
      if (l == 2) Give(kWideSquares, low[l], 2 * unit, false);
      if (l == 3) Give(kWideSquares, high[l], 2 * unit + 64, false);
    });
    top_ = 0;
  }

  PLUMB_DEVICE void Give(int which, Uint128 v, int exponent, bool negative) {
    if (v != 0) sink_->Wide(which, v, exponent, negative);
  }

  PLUMB_DEVICE void AddOne(uint64_t significand, int unit, bool negative) {
    if (significand == 0) return;
    sink_->Wide(kWideSum, significand, unit, negative);
    sink_->Wide(kWideMagnitudes, significand, unit, false);
    sink_->Wide(kWideSquares, static_cast<Uint128>(significand) * significand, 2 * unit, false);
  }

  // The exponent field, 1 for subnormals too, and the exponent of its values' last bits.
  PLUMB_DEVICE static int Field(W magnitude) {
    const auto field = static_cast<int>(magnitude >> kM);
    return field > 0 ? field : 1;
  }
  PLUMB_DEVICE static int Unit(int field) { return field - WordFormat<W>::kBias - kM; }

  const TensorItem& item_;
  const DigestTable* table_;
  Sink* sink_;
  W least_normal_;  // of the tensor's dtype
  int64_t block_ = -1;
  DigestKey block_key_{};
  Var<Lane> lanes_{};
  Var<Sums> sums_{};
  int top_ = 0;  // exponent field that the sums' units belong to; 0: none yet
};

}  // namespace plumbline
