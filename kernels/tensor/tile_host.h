// Computes the sums of a tile of bf16, f16 or f32 in their fixed order (tensor/sum_order.h), chunk
// by chunk on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tensor/loops.h"
#include "kernels/tensor/totals.h"

namespace plumbline {

// Processes one tile after another. Not thread-safe.
template <typename Values, typename Loops>
class HostTile {
 public:
  static constexpr int64_t kElements = kSumTileBytes / sizeof(typename Values::Raw);

  // Adds the next `n` elements: kChunk, except the tensor's last ones. The elements of two calls
  // are read together: they must stay valid until the second call, or Finish, returns.
  void Add(const std::byte* data, int n) {
    if (n < kChunk) {
      const size_t bytes = static_cast<size_t>(n) * sizeof(typename Values::Raw);
      std::memcpy(padded_, data, bytes);
      std::memset(padded_ + bytes, 0, kChunkBytes - bytes);
      data = padded_;
      last_threads_ = static_cast<int>((bytes + kSumVectorBytes - 1) / kSumVectorBytes);
    }
    for (int b = 0; b < kChunkBlocks; ++b) blocks_[filled_++] = data + b * kDigestBlockBytes;
    if (filled_ == kSumBlocks) AddRound();
  }

  // Ends the tile. `most`: the bits of the largest magnitude, those of f32. Adds its sums to the
  // totals; returns false, and does nothing, if they must be added exactly.
  bool Finish(uint32_t most, TensorTotals* totals) {
    if (filled_ > 0) {
      std::fill(blocks_ + filled_, blocks_ + kSumBlocks, static_cast<const std::byte*>(kZeros));
      AddRound();
    }
    const bool ordinary = most < Values::Widened(Values::kMost) &&
                          (most >= Values::Widened(Values::kLeast) || most == 0);
    if (ordinary) {
      totals->sum.Add(Added(lanes_.sum));
      totals->magnitudes.Add(Added(lanes_.magnitudes));
      totals->squares.Add(Added(lanes_.squares));
    }
    lanes_ = TileLanes{};
    return ordinary;
  }

 private:
  static constexpr size_t kChunkBytes = kChunk * sizeof(typename Values::Raw);
  static constexpr int kChunkBlocks = static_cast<int>(kChunkBytes) / kDigestBlockBytes;
  static constexpr std::byte kZeros[kDigestBlockBytes] = {};

  // Threads that have only zeros add nothing.
  void AddRound() {
    const bool first_only = filled_ <= kChunkBlocks && last_threads_ < kSumThreads;
    constexpr int kStep = 8;
    const int threads = first_only ? (last_threads_ + kStep - 1) / kStep * kStep : kSumThreads;
    Loops::AddRound(Values{}, blocks_, threads, &lanes_);
    filled_ = 0;
    last_threads_ = kSumThreads;
  }

  static double Added(double* lanes) {
    for (int n = kSumThreads / 2; n > 0; n /= 2) {
      for (int i = 0; i < n; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
    }
    return lanes[0];
  }

  const std::byte* blocks_[kSumBlocks] = {};
  int filled_ = 0;                  // of them
  int last_threads_ = kSumThreads;  // threads that have an element, if a chunk ends early
  TileLanes lanes_{};
  alignas(32) std::byte padded_[kChunkBytes] = {};
};

}  // namespace plumbline
