// Counts exponents and fits of ordinary bf16 and f32 on a device, 16 bytes per lane at once, if all
// values of the round are zero or at least about 2^-94. tensor/tile.h handles all other rounds,
// with the same figures. Warp and Sink are those of tensor/tile.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/core/device_code.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/lane_vector.h"
#include "kernels/tensor/tile_lanes.h"

namespace plumbline {

// For every other dtype: does nothing.
class NoLooks {
 public:
  static constexpr int64_t kElements = kTileLanes * kLaneElements;
  PLUMB_DEVICE explicit NoLooks(const TensorItem&) {}
  template <typename Sink, typename Lanes>
  PLUMB_DEVICE bool Look(int64_t, const Sink&, Lanes*) {
    return false;
  }
};

template <typename Warp, typename Raw>
class VectorLooks {
  template <typename T>
  using Var = typename Warp::template Var<T>;
  using Vector = LaneVector<Raw>;
  using Extent = LaneExtent<Raw>;

 public:
  static constexpr int64_t kElements = int64_t{kTileLanes} * Vector::kValues;

  PLUMB_DEVICE explicit VectorLooks(const TensorItem& item)
      : item_(item),
        vectors_(item.dense && reinterpret_cast<uint64_t>(item.data) % sizeof(Vector) == 0 &&
                 (sizeof(Raw) == 4 || item.dtype == DType::kBF16)) {}

  // Looks at elements [first, first + kElements). Returns false, and does nothing, if they do not
  // all exist or are not ordinary. `lanes`: the counts of each lane.
  template <typename Sink, typename Lanes>
  PLUMB_DEVICE bool Look(int64_t first, Sink& sink, Lanes* lanes) {
    if (!vectors_ || item_.count - first < kElements) return false;
    const Raw* data = static_cast<const Raw*>(item_.data) + first;
    Var<Vector> vectors;
    Var<Extent> own;
    Warp::Each([&](int l) {
      vectors[l] = Vector::Load(data + l * Vector::kValues);
      const Vector m = vectors[l].Magnitudes();
      own[l] = Extent::Of(m, m.Less());
    });
    const Var<Extent> of_32 = Joined(own, 1, 32 / Vector::kValues);
    const Var<Extent> of_128 = Joined(of_32, 32 / Vector::kValues, 128 / Vector::kValues);
    const Var<Extent> of_all = Joined(of_128, 128 / Vector::kValues, kTileLanes);
    Extent all{};
    Warp::Each([&](int l) { all = of_all[l]; });  // the same on every lane
    if (all.Most() >> kM > kMostField || (all.Least() + 1) >> kM < kLeastField) return false;

    Warp::Each([&](int l) {
      auto& lane = (*lanes)[l];
      PLUMB_UNROLL for (int k = 0; k < Vector::kValues; ++k) {
        sink.Field(static_cast<int>(vectors[l].Value(k) >> 23 & 0xff));
      }
      const Vector m = vectors[l].Magnitudes();
      const Vector less = m.Less();
      Fits(m, less, all, lane.counts);
      ScaledFits(less, of_32[l], 0, lane.counts);
      ScaledFits(less, of_128[l], 1, lane.counts);
    });
    return true;
  }

 private:
  static constexpr int kM = WordFormat<Raw>::kFractionBits;
  // Exponent fields of the values, except zeros: finite, and scalable.
  static constexpr uint32_t kLeastField = kLeastScalableField;
  static constexpr uint32_t kMostField = 254;

  // Combines groups of `lanes` lanes from groups of `from` lanes.
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

  // `most`: an upper bound of all values.
  PLUMB_DEVICE static void CountSmall(const Vector& less, const FitBounds<Raw>& bounds,
                                      uint32_t most, int fit, uint32_t* counts) {
    const uint32_t flushed = Vector::kValues - less.CountFrom(bounds.subnormal_from - 1u);
    counts[FitCount(fit, kFitFlushed)] += flushed;
    if (most < bounds.subnormal_from) return;
    const uint32_t small = Vector::kValues - less.CountFrom(bounds.normal_from - 1u);
    counts[FitCount(fit, kFitSubnormal)] += small - flushed;
  }

  // Counts the lane's part of a scaled block; `size`: 0 for blocks of 32, 1 of 128.
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
  bool vectors_;
};

// Selected by the dtype's width. f16 uses the class of bf16, which rejects f16.
template <typename Warp, typename Raw>
using Looks =
    std::conditional_t<sizeof(Raw) == 2 || sizeof(Raw) == 4, VectorLooks<Warp, Raw>, NoLooks>;

}  // namespace plumbline
