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
  static constexpr int64_t kLeanElements = kTileElements;
  template <typename Lanes>
  PLUMB_DEVICE bool Measure(int64_t, int64_t, bool, TileDigest*, Lanes*) {
    return false;
  }
  template <typename Lanes>
  PLUMB_DEVICE bool MeasureLean(int64_t, int64_t, const DigestTable*, Lanes*) {
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
  // `looks`: at exponents and fits too. `lanes`: what each lane counts.
  template <typename Lanes>
  PLUMB_DEVICE bool Measure(int64_t first, int64_t next, bool looks, TileDigest* digest,
                            Lanes* lanes) {
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
      if (raises) Raise(vectors[l], &lane);
      const Vector m = vectors[l].Magnitudes();
      if (looks) {
        for (int k = 0; k < Vector::kValues; ++k) {
          sink_.Field(static_cast<int>(vectors[l].Value(k) >> 23 & 0xff));
        }
        const Vector less = m.Less();
        Fits(m, less, all, lane.counts);
        ScaledFits(less, of_32[l], 0, lane.counts);
        ScaledFits(less, of_128[l], 1, lane.counts);
      } else {
        lane.counts[kCountZero] += Vector::kValues - m.CountFrom(1);
      }
      if (most != 0) sums_.Add(vectors[l], static_cast<int>((own[l].Least() + 1) >> kM), l);
    });
    if (raises) FindBound(*lanes);
    return true;
  }

  // Elements [first, first + kLeanElements) that nobody looks at more closely, a block of the
  // digest: four vectors a lane, and two votes of the warp. False: not all there, not ordinary, or
  // outside of the sums' units; nothing was done. `next` as above.
  static constexpr int kLeanVectors = 4;
  static constexpr int64_t kLeanElements = kElements * kLeanVectors;
  static_assert(kLeanElements * sizeof(Raw) == kDigestBlockBytes);
  template <typename Lanes>
  PLUMB_DEVICE bool MeasureLean(int64_t first, int64_t next, const DigestTable* table,
                                Lanes* lanes) {
    if (!vectors_ || item_.count - first < kLeanElements) return false;
    const Var<Lean> vectors = first == lean_at_ ? lean_ : LoadedLean(first);
    lean_at_ = next >= 0 && item_.count - next >= kLeanElements ? next : -1;
    if (lean_at_ >= 0) lean_ = LoadedLean(next);
    Var<LeanExtent> own;
    Var<bool> stray;
    Var<bool> beyond;
    Warp::Each([&](int l) {
      own[l] = LeanExtentOf(vectors[l]);
      const uint32_t most = own[l].most;
      stray[l] = most != 0 &&
                 !(most >> kM <= Sums::kMostField && own[l].least >> kM >= Sums::kLeastField &&
                   sums_.Holds(static_cast<int>(most >> kM)));
      beyond[l] = bound_ == 0 || most << (32 - Vector::kBits) > bound_;
    });
    if (Warp::Any(stray)) return false;
    const bool raises = Warp::Any(beyond);
    const Var<DigestKey> keys =
        BlockKeys(first * static_cast<int64_t>(sizeof(Raw)) / kDigestBlockBytes);
    Warp::Each([&](int l) {
      auto& lane = (*lanes)[l];
      lane.counts[kCountZero] += own[l].zeros;
      PLUMB_UNROLL for (int r = 0; r < kLeanVectors; ++r) {
        const Vector& vector = vectors[l].v[r];
        if (raises) Raise(vector, &lane);
        AddLeanDigest(vector, r * kTileLanes + l, keys[l], table, &lane.digest);
        sums_.Add(vector, static_cast<int>(own[l].least >> kM), l);
      }
    });
    if (raises) FindBound(*lanes);
    return true;
  }

  PLUMB_DEVICE void Flush() { sums_.Flush(); }

 private:
  struct Lean {
    Vector v[kLeanVectors];
  };
  struct LeanExtent {
    uint32_t most;   // magnitude
    uint32_t least;  // but zero
    uint32_t zeros;
  };
  struct alignas(16) TwoKeys {
    uint64_t first;
    uint64_t second;
  };

  PLUMB_DEVICE Var<Lean> LoadedLean(int64_t first) const {
    const Raw* data = static_cast<const Raw*>(item_.data) + first;
    Var<Lean> out;
    Warp::Each([&](int l) {
      PLUMB_UNROLL for (int r = 0; r < kLeanVectors; ++r) {
        out[l].v[r] = Vector::Load(data + (r * kTileLanes + l) * Vector::kValues);
      }
    });
    return out;
  }

  PLUMB_DEVICE static LeanExtent LeanExtentOf(const Lean& lean) {
    uint32_t most = 0;
    uint32_t least = Vector::kMask;
    PLUMB_UNROLL for (int r = 0; r < kLeanVectors; ++r) {
      PLUMB_UNROLL for (int i = 0; i < Vector::kWords; ++i) {
        const uint32_t m = lean.v[r].word[i] & Vector::kMask;
        most = Vector::Larger(most, m);
        least = Vector::Smaller(least, m);
      }
    }
    LeanExtent extent{Vector::Folded(most), Vector::FoldedLeast(least), 0};
    if (extent.least == 0) {
      uint32_t less = Vector::kLargest;
      PLUMB_UNROLL for (int r = 0; r < kLeanVectors; ++r) {
        const Vector m = lean.v[r].Magnitudes();
        extent.zeros += Vector::kValues - m.CountFrom(1);
        const uint32_t of_vector = m.Less().Smallest();
        less = of_vector < less ? of_vector : less;
      }
      extent.least = less + 1;
    }
    return extent;
  }

  // Each lane makes the key of one of 32 blocks, and all ask for it.
  PLUMB_DEVICE Var<DigestKey> BlockKeys(int64_t block) {
    if (block / kTileLanes != keys_at_) {
      keys_at_ = block / kTileLanes;
      Warp::Each([&](int l) {
        const DigestKey key = DigestBlockKey(static_cast<uint64_t>(keys_at_ * kTileLanes + l));
        key_low_[l] = key.low;
        key_high_[l] = key.high;
      });
    }
    const Var<uint64_t> low = Warp::From(key_low_, static_cast<int>(block % kTileLanes));
    const Var<uint64_t> high = Warp::From(key_high_, static_cast<int>(block % kTileLanes));
    Var<DigestKey> keys;
    Warp::Each([&](int l) { keys[l] = {low[l], high[l]}; });
    return keys;
  }

  // Vector `at` of its block: two words.
  PLUMB_DEVICE static void AddLeanDigest(const Vector& v, int at, const DigestKey& key,
                                         const DigestTable* table, Digest* digest) {
    const uint64_t words[2] = {static_cast<uint64_t>(v.word[1]) << 32 | v.word[0],
                               static_cast<uint64_t>(v.word[3]) << 32 | v.word[2]};
    const auto low = *reinterpret_cast<const TwoKeys*>(table->low.data() + 2 * at);
    const auto high = *reinterpret_cast<const TwoKeys*>(table->high.data() + 2 * at);
    digest->low +=
        DigestWord(words[0], low.first ^ key.low) + DigestWord(words[1], low.second ^ key.low);
    digest->high +=
        DigestWord(words[0], high.first ^ key.high) + DigestWord(words[1], high.second ^ key.high);
  }

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
  Var<Lean> lean_{};  // the same of lean rounds
  int64_t lean_at_ = -1;
  Var<uint64_t> key_low_{};  // of the digest's blocks from 32 keys_at_ on
  Var<uint64_t> key_high_{};
  int64_t keys_at_ = -1;
  uint32_t bound_ = 0;  // as f32 bits
  Sums sums_;
};

// By the dtype's width; f16 has bf16's, and no plain rounds.
template <typename Warp, typename Sink, typename Raw>
using PlainRounds = std::conditional_t<sizeof(Raw) == 2 || sizeof(Raw) == 4,
                                       VectorRounds<Warp, Sink, Raw>, NoRounds<Sink>>;

}  // namespace plumbline
