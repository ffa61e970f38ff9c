// A tile of tensor elements over the lanes of a warp: its shape, and sums over lanes. The warp is
// that of tensor/tile.h.
#pragma once

#include "kernels/core/device_code.h"

namespace plumbline {

inline constexpr int kTileLanes = 32;
inline constexpr int kLaneElements = 4;  // a round
inline constexpr int kTileRounds = 4;
inline constexpr int kTileElements = kTileLanes * kLaneElements * kTileRounds;

// Reduces each group of `lanes` lanes, with the result on all of them, in a butterfly's order. V: a
// Var of the warp.
template <typename Warp, typename V, typename F>
PLUMB_DEVICE V Reduced(V v, F f, int lanes = kTileLanes) {
  for (int mask = 1; mask < lanes; mask *= 2) {
    const V other = Warp::Xor(v, mask);
    Warp::Each([&](int l) { v[l] = f(v[l], other[l]); });
  }
  return v;
}

}  // namespace plumbline
