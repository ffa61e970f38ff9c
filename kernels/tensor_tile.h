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

#include "kernels/tensor_batch.h"
#include "kernels/tensor_digest.h"
#include "kernels/tensor_fit.h"
#include "kernels/tensor_widen.h"

#if defined(__CUDACC__)
#define PLUMB_DEVICE __device__ __forceinline__
#define PLUMB_UNROLL _Pragma("unroll")
#else
#define PLUMB_DEVICE inline
#define PLUMB_UNROLL
#endif

namespace plumbline {

inline constexpr int kTileLanes = 32;
inline constexpr int kLaneElements = 4;  // a round
inline constexpr int kTileRounds = 8;
inline constexpr int kTileElements = kTileLanes * kLaneElements * kTileRounds;

// How far below the largest exponent of its tile a value may lie so that a lane's sums hold it:
// 24 bits and 32 below are 61 bits for 32 values, and 117 for their squares; 53 bits and 8 below
// are 127 for the squares. Others are added one by one.
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
        least_normal_(BitsNotBelow<W>(PowerOfTwo(FormatOf(item.dtype).min_exponent))) {
    for (int i = 0; i < kPlainFits; ++i) bounds_[i] = BoundsOf<W>(kFormatFitTargets[i].format);
  }

  // Elements [first, first + kTileElements), as far as there are.
  PLUMB_DEVICE void Measure(int64_t first) {
    Var<W> most{};
    PLUMB_UNROLL for (int round = 0; round < kTileRounds; ++round) {
      Round(first + round * kTileLanes * kLaneElements, round, &most);
    }
    AddSums(most);
  }

  // What the lanes counted, to the sink.
  PLUMB_DEVICE void Finish() {
    for (int i = 0; i < kTensorCounts; ++i) {
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
  struct Words {
    W w[kLaneElements * kTileRounds];
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

  PLUMB_DEVICE void Round(int64_t first, int round, Var<W>* tile_most) {
    Var<Four> raw;
    Var<int> valid;
    Warp::Each([&](int l) {
      const int64_t at = first + l * kLaneElements;
      const int64_t left = item_.count - at;
      valid[l] = left <= 0 ? 0 : (left >= kLaneElements ? kLaneElements : static_cast<int>(left));
      raw[l] = Load(at, valid[l]);
    });
    AddDigests(raw, valid, first);
    Var<W> most;
    Var<W> least;
    Warp::Each([&](int l) {
      most[l] = 0;
      least[l] = static_cast<W>(~W{0});
      PLUMB_UNROLL for (int k = 0; k < kLaneElements; ++k) {
        W& word = words_[l].w[round * kLaneElements + k];
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
    Warp::Each([&](int l) {
      const W* words = words_[l].w + round * kLaneElements;
      Fits(words, most_of_128[l], least_of_128[l], &lanes_[l]);
      ScaledFits(words, most_of_32[l], least_of_32[l], 0, &lanes_[l]);
      ScaledFits(words, most_of_128[l], least_of_128[l], 1, &lanes_[l]);
      (*tile_most)[l] = internal::Larger((*tile_most)[l], most_of_128[l]);
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
    const DigestKey block = DigestBlockKey(static_cast<uint64_t>(index) / kDigestBlockWords);
    lane->digest.low += DigestWord(word, table_->low[place] ^ block.low);
    lane->digest.high += DigestWord(word, table_->high[place] ^ block.high);
  }

  PLUMB_DEVICE void AddDigests(const Var<Four>& raw, const Var<int>& valid, int64_t first) {
    constexpr int kWordElements = 8 / static_cast<int>(sizeof(Raw));
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
      ++lane.counts[m > kInfinityBits<W> ? kCountNan
                                         : (negative ? kCountNegativeInf : kCountPositiveInf)];
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

  PLUMB_DEVICE void Fits(const W* words, W most, W least, Lane* lane) const {
    PLUMB_UNROLL for (int i = 0; i < kPlainFits; ++i) {
      const FitBounds<W>& bounds = bounds_[i];
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
        scaled[k] =
            __builtin_bit_cast(uint64_t, ScaledUp(static_cast<W>(words[k] & kMagnitudeMask<W>)));
      }
      const auto top = __builtin_bit_cast(uint64_t, ScaledUp(most));
      CountSmall(scaled, ScaledBounds<uint64_t>(DType::kE4M3, top), e4m3, lane);
      CountSmall(scaled, ScaledBounds<uint64_t>(DType::kE5M2, top), e5m2, lane);
      return;
    }
    const FitBounds<W> bounds = ScaledBounds<W>(DType::kE4M3, most);
    if (least >= bounds.normal_from - 1) return;
    CountSmall(words, bounds, e4m3, lane);
    CountSmall(words, ScaledBounds<W>(DType::kE5M2, most), e5m2, lane);
  }

  PLUMB_DEVICE void AddSums(const Var<W>& most) {
    using Sums = TileSums<W>;
    using Signed = typename Sums::Signed;
    Var<Int128> sum{};
    Var<Int128> magnitudes{};
    Var<Uint128> squares{};
    Warp::Each([&](int l) {
      const int top = Field(most[l]);
      Signed lane_sum = 0;
      Signed lane_magnitudes = 0;
      Uint128 lane_squares = 0;
      PLUMB_UNROLL for (const W word : words_[l].w) {
        const W m = word & kMagnitudeMask<W>;
        const int field = Field(m);
        const W implied = m >> kM != 0 ? W{1} << kM : W{0};
        const auto significand = static_cast<uint64_t>((m & kFractionMask<W>) | implied);
        const int up = field - top + Sums::kWindow;
        if (up < 0) {
          AddOne(significand, Unit(field), word != m);
          continue;
        }
        const Signed shifted = static_cast<Signed>(significand) << up;
        lane_sum += word != m ? -shifted : shifted;
        lane_magnitudes += shifted;
        lane_squares += (static_cast<Uint128>(significand) * significand) << (2 * up);
      }
      sum[l] = lane_sum;
      magnitudes[l] = lane_magnitudes;
      squares[l] = lane_squares;
    });
    const auto added = [](auto a, auto b) { return a + b; };
    sum = Reduced(sum, added);
    magnitudes = Reduced(magnitudes, added);
    AddSquares(squares, most);
    Warp::Each([&](int l) {
      const int unit = Unit(Field(most[l])) - Sums::kWindow;
      const bool negative = sum[l] < 0;
      if (l == 0 && sum[l] != 0) {
        sink_->Wide(kWideSum, static_cast<Uint128>(negative ? -sum[l] : sum[l]), unit, negative);
      }
      if (l == 1 && magnitudes[l] != 0) {
        sink_->Wide(kWideMagnitudes, static_cast<Uint128>(magnitudes[l]), unit, false);
      }
    });
  }

  // A lane's squares may fill 127 bits, so halves of them are added over the warp.
  PLUMB_DEVICE void AddSquares(const Var<Uint128>& squares, const Var<W>& most) {
    Var<Uint128> low;
    Var<Uint128> high;
    Warp::Each([&](int l) {
      low[l] = static_cast<uint64_t>(squares[l]);
      high[l] = squares[l] >> 64;
    });
    const auto added = [](auto a, auto b) { return a + b; };
    low = Reduced(low, added);
    high = Reduced(high, added);
    Warp::Each([&](int l) {
      const int unit = 2 * (Unit(Field(most[l])) - TileSums<W>::kWindow);
      if (l == 2 && low[l] != 0) sink_->Wide(kWideSquares, low[l], unit, false);
      if (l == 3 && high[l] != 0) sink_->Wide(kWideSquares, high[l], unit + 64, false);
    });
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
  FitBounds<W> bounds_[kPlainFits];
  Var<Lane> lanes_{};
  Var<Words> words_;
};

}  // namespace plumbline
