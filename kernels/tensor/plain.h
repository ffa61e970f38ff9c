// The common case of tensor statistics on a device: a round of 16 bytes a lane, of bf16 or f32,
// whose values are ordinary (zero or between some 2^-94 and 2^124), measured in a few operations
// a value. Whatever else comes is left to the rounds of tensor/tile.h, which give the same figures.
// Warp and Sink are those of tensor/tile.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/core/device_code.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/lane_vector.h"
#include "kernels/tensor/plain_sums.h"
#include "kernels/tensor/tile_digest.h"
#include "kernels/tensor/tile_lanes.h"

namespace plumbline {

// Of every other dtype: none.
template <typename Sink>
class NoRounds {
 public:
  static constexpr int64_t kElements = kTileLanes * kLaneElements;
  PLUMB_DEVICE NoRounds(const TensorItem&, const Sink&) {}
  template <typename Lanes>
  PLUMB_DEVICE bool Measure(int64_t, int64_t, TileDigest*, Lanes*) {
    return false;
  }
  PLUMB_DEVICE void Flush() {}
};

template <typename Warp, typename Sink, typename Raw>
class VectorRounds {
  template <typename T>
  using Var = typename Warp::template Var<T>;
  using Vector = LaneVector<Raw>;
  using Extent = LaneExtent<Raw>;

 public:
  static constexpr int64_t kElements = int64_t{kTileLanes} * Vector::kValues;

  PLUMB_DEVICE VectorRounds(const TensorItem& item, const Sink& sink)
      : item_(item),
        sink_(sink),
        vectors_(item.dense && reinterpret_cast<uint64_t>(item.data) % sizeof(Vector) == 0 &&
                 (sizeof(Raw) == 4 || item.dtype == DType::kBF16)),
        sums_(sink) {}

  // Elements [first, first + kElements); false: they are not all there or not plain, and nothing
  // was done. `next`: which are asked for next, so that they are under way meanwhile; -1: none.
  // `lanes`: what each lane counts.
  template <typename Lanes>
  PLUMB_DEVICE bool Measure(int64_t first, int64_t next, TileDigest* digest, Lanes* lanes) {
    if (!vectors_ || item_.count - first < kElements) return false;
    const Var<Vector> vectors = first == ahead_at_ ? ahead_ : Loaded(first);
    ahead_at_ = next >= 0 && item_.count - next >= kElements ? next : -1;
    if (ahead_at_ >= 0) ahead_ = Loaded(next);
    Var<Extent> own;
    Warp::Each([&](int l) {
      const Vector m = vectors[l].Magnitudes();
      own[l] = Extent::Of(m, m.Less());
    });
    const Var<Extent> of_32 = Joined(own, 1, 32 / Vector::kValues);
    const Var<Extent> of_128 = Joined(of_32, 32 / Vector::kValues, 128 / Vector::kValues);
    const Var<Extent> of_all = Joined(of_128, 128 / Vector::kValues, kTileLanes);
    Extent all{};
    Warp::Each([&](int l) { all = of_all[l]; });  // the same on every lane
    if (!IsPlain(all)) return false;

    const uint32_t most = all.Most();
    if (most != 0) sums_.Aim(static_cast<int>(most >> kM));
    const bool raises = bound_ == 0 || most << (32 - Vector::kBits) > bound_;
    digest->Enter(first * static_cast<int64_t>(sizeof(Raw)));
    Warp::Each([&](int l) {
      auto& lane = (*lanes)[l];
      AddDigest(vectors[l], first + l * Vector::kValues, *digest, &lane.digest);
      for (int k = 0; k < Vector::kValues; ++k) {
        sink_.Field(static_cast<int>(vectors[l].Value(k) >> 23 & 0xff));
      }
      if (raises) Raise(vectors[l], &lane);
      const Vector m = vectors[l].Magnitudes();
      const Vector less = m.Less();
      Fits(m, less, all, lane.counts);
      ScaledFits(less, of_32[l], 0, lane.counts);
      ScaledFits(less, of_128[l], 1, lane.counts);
      if (most != 0) sums_.Add(vectors[l], static_cast<int>((own[l].Least() + 1) >> kM), l);
    });
    if (raises) FindBound(*lanes);
    return true;
  }

  PLUMB_DEVICE void Flush() { sums_.Flush(); }

 private:
  static constexpr int kM = WordFormat<Raw>::kFractionBits;
  using Sums = PlainSums<Warp, Sink, Raw>;

  PLUMB_DEVICE Var<Vector> Loaded(int64_t first) const {
    const Raw* data = static_cast<const Raw*>(item_.data) + first;
    Var<Vector> vectors;
    Warp::Each([&](int l) { vectors[l] = Vector::Load(data + l * Vector::kValues); });
    return vectors;
  }

  // Of groups of `lanes` lanes, given those of `from`.
  PLUMB_DEVICE static Var<Extent> Joined(Var<Extent> v, int from, int lanes) {
    for (int mask = from; mask < lanes; mask *= 2) {
      PLUMB_UNROLL for (int i = 0; i < Extent::kParts; ++i) {
        Var<uint32_t> part;
        Warp::Each([&](int l) { part[l] = v[l].part[i]; });
        const Var<uint32_t> other = Warp::Xor(part, mask);
        Warp::Each([&](int l) { v[l].part[i] = Vector::Larger(part[l], other[l]); });
      }
    }
    return v;
  }

  PLUMB_DEVICE static bool IsPlain(const Extent& all) {
    return all.Most() >> kM <= Sums::kMostField && (all.Least() + 1) >> kM >= Sums::kLeastField;
  }

  PLUMB_DEVICE static void AddDigest(const Vector& v, int64_t at, const TileDigest& from,
                                     Digest* digest) {
    PLUMB_UNROLL for (int i = 0; i < Vector::kWords; i += 2) {
      const uint64_t word = static_cast<uint64_t>(v.word[i + 1]) << 32 | v.word[i];
      from.Add(word, at * static_cast<int64_t>(sizeof(Raw)) / 8 + i / 2, digest);
    }
  }

  // A lane's extremes, as order keys: see TensorRaw.
  template <typename Lane>
  PLUMB_DEVICE static void Raise(const Vector& v, Lane* lane) {
    PLUMB_UNROLL for (int k = 0; k < Vector::kValues; ++k) {
      const uint32_t bits = v.Value(k);
      const uint32_t key = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
      lane->highest = key > lane->highest ? key : lane->highest;
      lane->lowest_flipped = ~key > lane->lowest_flipped ? ~key : lane->lowest_flipped;
    }
  }

  // No magnitude up to this one changes an extreme of the warp; 0: any may.
  template <typename Lanes>
  PLUMB_DEVICE void FindBound(const Lanes& lanes) {
    Var<uint32_t> high;
    Var<uint32_t> low;
    Warp::Each([&](int l) {
      high[l] = lanes[l].highest;
      low[l] = lanes[l].lowest_flipped;
    });
    const auto larger = [](uint32_t a, uint32_t b) { return a > b ? a : b; };
    high = Reduced<Warp>(high, larger);
    low = Reduced<Warp>(low, larger);
    Warp::Each([&](int l) {
      // Both have the top bit where the value has that end's sign.
      const uint32_t above = high[l] >> 31 != 0 ? high[l] & 0x7fffffffu : 0;
      const uint32_t below = low[l] >> 31 != 0 ? low[l] & 0x7fffffffu : 0;
      bound_ = above < below ? above : below;
    });
  }

  PLUMB_DEVICE static void Fits(const Vector& m, const Vector& less, const Extent& all,
                                uint32_t* counts) {
    const uint32_t most = all.Most();
    const uint32_t least = all.Least();
    PLUMB_UNROLL for (int i = 0; i < kPlainFits; ++i) {
      const FitBounds<Raw> bounds = PlainBounds<Raw>(i);
      if (least < bounds.normal_from - 1u) CountSmall(less, bounds, most, i, counts);
      if (most >= bounds.saturated_from) {
        counts[FitCount(i, kFitSaturated)] += m.CountFrom(bounds.saturated_from);
      }
    }
  }

  // `most`: none is above it.
  PLUMB_DEVICE static void CountSmall(const Vector& less, const FitBounds<Raw>& bounds,
                                      uint32_t most, int fit, uint32_t* counts) {
    const uint32_t flushed = Vector::kValues - less.CountFrom(bounds.subnormal_from - 1u);
    counts[FitCount(fit, kFitFlushed)] += flushed;
    if (most < bounds.subnormal_from) return;
    const uint32_t small = Vector::kValues - less.CountFrom(bounds.normal_from - 1u);
    counts[FitCount(fit, kFitSubnormal)] += small - flushed;
  }

  // The lane's part of a scaled block; `size`: 0 for blocks of 32, 1 of 128.
  PLUMB_DEVICE static void ScaledFits(const Vector& less, const Extent& block, int size,
                                      uint32_t* counts) {
    const uint32_t most = block.Most();
    if (most == 0) return;
    const FitBounds<Raw> e4m3 = ScaledBounds<Raw>(DType::kE4M3, static_cast<Raw>(most));
    if (block.Least() >= e4m3.normal_from - 1u) return;
    CountSmall(less, e4m3, most, kPlainFits + size, counts);
    const FitBounds<Raw> e5m2 = ScaledBounds<Raw>(DType::kE5M2, static_cast<Raw>(most));
    if (block.Least() >= e5m2.normal_from - 1u) return;
    CountSmall(less, e5m2, most, kPlainFits + 2 + size, counts);
  }

  const TensorItem& item_;
  Sink sink_;
  bool vectors_;
  Var<Vector> ahead_{};  // the elements from ahead_at_ on; -1: none
  int64_t ahead_at_ = -1;
  uint32_t bound_ = 0;  // as f32 bits
  Sums sums_;
};

// By the dtype's width; f16 has bf16's, and no plain rounds.
template <typename Warp, typename Sink, typename Raw>
using PlainRounds = std::conditional_t<sizeof(Raw) == 2 || sizeof(Raw) == 4,
                                       VectorRounds<Warp, Sink, Raw>, NoRounds<Sink>>;

}  // namespace plumbline
