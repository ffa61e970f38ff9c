// An update check with a warp: a block of kUpdateBlock elements, element i on lane i % 32. A
// template over the warp as in tensor/tile.h; a Sink takes, from any lane,
//   Sum(which, pair)   of one block      Count(which, n)
#pragma once

#include <cstdint>

#include "base/load.h"
#include "kernels/core/device_code.h"
#include "kernels/update/batch.h"
#include "kernels/update/core.h"

namespace plumbline {

template <typename Warp, typename Sink>
class UpdateTile {
  template <typename T>
  using Var = typename Warp::template Var<T>;

 public:
  PLUMB_DEVICE UpdateTile(const UpdateItem& item, Sink* sink) : item_(item), sink_(sink) {}

  // Checks the block that begins at element `first`.
  PLUMB_DEVICE void Check(int64_t first) {
    Var<Lane> lanes{};
    for (int row = 0; row < kUpdateBlock / kUpdateLanes; ++row) {
      Warp::Each([&](int l) {
        const int64_t at = first + row * kUpdateLanes + l;
        if (at < item_.count) AddElement(at, &lanes[l]);
      });
    }
    PLUMB_UNROLL for (int k = 0; k < kUpdateSums; ++k) AddSum(lanes, k);
    PLUMB_UNROLL for (int k = 0; k < kUpdateCounts; ++k) AddCount(lanes, k);
  }

 private:
  struct Lane {
    PairSum sums[kUpdateSums];
    uint64_t counts[kUpdateCounts];
  };

  PLUMB_DEVICE static int64_t Place(const UpdateOperand& operand, int64_t at) {
    return operand.dense ? at : operand.axes.Offset(at);
  }

  // Returns true if elements i of a and j of b have the same bits.
  PLUMB_DEVICE static bool Same(const void* a, int64_t i, const void* b, int64_t j, DType t) {
    switch (DTypeSize(t)) {
      case 8:
        return LoadRaw<uint64_t>(a, i) == LoadRaw<uint64_t>(b, j);
      case 4:
        return LoadRaw<uint32_t>(a, i) == LoadRaw<uint32_t>(b, j);
      case 2:
        return LoadRaw<uint16_t>(a, i) == LoadRaw<uint16_t>(b, j);
      default:
        return LoadRaw<uint8_t>(a, i) == LoadRaw<uint8_t>(b, j);
    }
  }

  PLUMB_DEVICE void AddElement(int64_t at, Lane* lane) const {
    const int64_t before = Place(item_.before, at);
    const int64_t after = Place(item_.after, at);
    const int64_t intended = Place(item_.intended, at);
    const bool same = Same(item_.before.data, before, item_.after.data, after, item_.dtype);
    const UpdateTerms t =
        UpdateTermsOf(LoadDouble(item_.before.data, item_.dtype, before),
                      LoadDouble(item_.after.data, item_.dtype, after),
                      LoadDouble(item_.intended.data, item_.intended_dtype, intended),
                      same ? 1u : 0u, item_.rounding);
    PLUMB_UNROLL for (int k = 0; k < kUpdateSums; ++k) AddTo(t.sum[k], t.rest[k], &lane->sums[k]);
    PLUMB_UNROLL for (int k = 0; k < kUpdateCounts; ++k) lane->counts[k] += t.count[k];
  }

  PLUMB_DEVICE void AddSum(const Var<Lane>& lanes, int k) {
    Var<PairSum> sum;
    Warp::Each([&](int l) { sum[l] = lanes[l].sums[k]; });
    for (int step = kUpdateLanes / 2; step > 0; step /= 2) {
      const Var<PairSum> other = Warp::Xor(sum, step);
      Warp::Each([&](int l) { sum[l] = Joined(sum[l], other[l]); });
    }
    Warp::Each([&](int l) {
      if (l == 0) sink_->Sum(k, sum[l]);
    });
  }

  PLUMB_DEVICE void AddCount(const Var<Lane>& lanes, int k) {
    Var<uint64_t> n;
    Warp::Each([&](int l) { n[l] = lanes[l].counts[k]; });
    for (int step = kUpdateLanes / 2; step > 0; step /= 2) {
      const Var<uint64_t> other = Warp::Xor(n, step);
      Warp::Each([&](int l) { n[l] += other[l]; });
    }
    Warp::Each([&](int l) {
      if (l == 0 && n[l] != 0) sink_->Count(k, n[l]);
    });
  }

  const UpdateItem& item_;
  Sink* sink_;
};

}  // namespace plumbline
