// Sixteen bytes of each of a tile's digest blocks, in a lane of one of four warps, and their
// digest. Host and device; the warp is that of tensor/tile.h.
#pragma once

#include <cstdint>

#include "base/load.h"
#include "kernels/core/device_code.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/digest.h"
#include "kernels/tensor/lane_vector.h"
#include "kernels/tensor/sum_order.h"
#include "kernels/tensor/tile_lanes.h"

namespace plumbline {

inline constexpr int kTileWarps = kSumThreads / kTileLanes;
inline constexpr int kTileBlocks = kSumTileBytes / kDigestBlockBytes;

// The keys of a tile's digest blocks.
struct alignas(16) TileKeys {
  DigestKey block[kTileBlocks];
};

template <typename Warp, typename Raw>
class TileVectors {
  template <typename T>
  using Var = typename Warp::template Var<T>;
  using Vector = LaneVector<Raw>;

 public:
  // `quarter`: selects a quarter of each block's vectors, and so one of the four warps.
  PLUMB_DEVICE TileVectors(const TensorItem& item, int quarter, const DigestTable* table)
      : item_(item),
        quarter_(quarter),
        aligned_(item.dense && reinterpret_cast<uint64_t>(item.data) % sizeof(Vector) == 0) {
    Warp::Each([&](int l) {
      const auto place = static_cast<size_t>(2 * (quarter_ * kTileLanes + l));
      PLUMB_UNROLL for (size_t i = 0; i < 2; ++i) {
        keys_[l].low[i] = table->low[place + i];
        keys_[l].high[i] = table->high[place + i];
      }
    });
  }

  // Returns true if the whole tile exists, in aligned vectors.
  PLUMB_DEVICE bool WholeAt(int64_t first) const {
    return aligned_ && item_.count - first >= static_cast<int64_t>(kSumTileBytes / sizeof(Raw));
  }

  // Returns the number of a tile's blocks in which the tensor has an element: a small tensor has
  // few.
  PLUMB_DEVICE int BlocksAt(int64_t first) const {
    constexpr int64_t kBlock = kDigestBlockBytes / sizeof(Raw);
    const int64_t blocks = (item_.count - first + kBlock - 1) / kBlock;
    return blocks < kTileBlocks ? static_cast<int>(blocks) : kTileBlocks;
  }

  // Return, for the lane's vector in a block: its first element, its address, its number of
  // elements.
  PLUMB_DEVICE int64_t ElementAt(int64_t first, int block, int l) const {
    constexpr int64_t kBlock = kDigestBlockBytes / sizeof(Raw);
    return first + block * kBlock + (quarter_ * kTileLanes + l) * Vector::kValues;
  }
  PLUMB_DEVICE const unsigned char* AddressAt(int64_t first, int l) const {
    return reinterpret_cast<const unsigned char*>(static_cast<const Raw*>(item_.data) +
                                                  ElementAt(first, 0, l));
  }
  PLUMB_DEVICE int ValidAt(int64_t at) const {
    const int64_t left = item_.count - at;
    return left <= 0 ? 0 : (left < Vector::kValues ? static_cast<int>(left) : Vector::kValues);
  }

  PLUMB_DEVICE Raw RawAt(int64_t i) const {
    return LoadRaw<Raw>(item_.data, item_.dense ? i : OffsetOf(item_.axes, i));
  }
  // Loads elements [at, at + valid), with `filler` in place of the others.
  PLUMB_DEVICE Vector Load(int64_t at, int valid, Raw filler) const {
    if (aligned_ && valid == Vector::kValues) {
      return Vector::Load(static_cast<const Raw*>(item_.data) + at);
    }
    return Gathered(at, valid, filler);
  }

  // The keys of the lane's two words of a block. A loop over blocks keeps copies of the keys and
  // the digest in registers.
  struct Keys {
    uint64_t low[2];
    uint64_t high[2];
  };
  PLUMB_DEVICE const Var<Keys>& keys() const { return keys_; }
  PLUMB_DEVICE Var<Digest>& digest() { return digest_; }

  PLUMB_DEVICE static void AddDigest(const Vector& v, const DigestKey& block, const Keys& keys,
                                     Digest* digest) {
    PLUMB_UNROLL for (int i = 0; i < 2; ++i) AddWord(v, block, keys, i, digest);
  }
  // Adds the words that contain an element.
  PLUMB_DEVICE void AddPartDigest(const Vector& v, int valid, const DigestKey& block, int l) {
    for (int i = 0; i < 2; ++i) {
      if (i * Vector::kValues / 2 < valid) AddWord(v, block, keys_[l], i, &digest_[l]);
    }
  }
  template <typename Sink>
  PLUMB_DEVICE void Finish(Sink& sink) {
    Warp::Each([&](int l) { sink.AddDigest(digest_[l]); });
  }

 private:
  PLUMB_CALLED static int64_t OffsetOf(const StridedAxes& axes, int64_t index) {
    return axes.Offset(index);
  }

  PLUMB_CALLED Vector Gathered(int64_t at, int valid, Raw filler) const {
    constexpr int kInWord = Vector::kValues / Vector::kWords;
    Vector v{};
    for (int k = 0; k < Vector::kValues; ++k) {
      const uint32_t raw = k < valid ? RawAt(at + k) : filler;
      v.word[k / kInWord] |= raw << (k % kInWord * Vector::kBits);
    }
    return v;
  }

  PLUMB_DEVICE static void AddWord(const Vector& v, const DigestKey& block, const Keys& keys, int i,
                                   Digest* digest) {
    const uint64_t word = static_cast<uint64_t>(v.word[2 * i + 1]) << 32 | v.word[2 * i];
    digest->low += DigestWord(word, keys.low[i] ^ block.low);
    digest->high += DigestWord(word, keys.high[i] ^ block.high);
  }

  const TensorItem& item_;
  int quarter_;
  bool aligned_;
  Var<Keys> keys_{};
  Var<Digest> digest_{};
};

}  // namespace plumbline
