// What the device kernels make of a batch's items, with 32 emulated lanes: the results that a
// launch leaves behind, added to zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/sample/batch.h"
#include "kernels/tensor/tile.h"
#include "kernels/update/tile.h"
#include "tests/kernels/device/emulated_warp.h"

namespace plumbline {

// Adds to the results as the device's atomics do.
struct PlainTensorSink {
  TensorRaw* raw;
  uint64_t* exponents;

  void Exponent(int index) { ++exponents[index]; }
  void Field(int field) { ++(field == 0 ? raw->counts[kCountZero] : exponents[field - 1 + 23]); }
  void Wide(int which, Uint128 v, int exponent, bool negative) {
    SplitDigits(v, exponent, [&](int i, int64_t part) {
      raw->wides[which].digit[i] += negative ? -part : part;
    });
  }
  void Count(int i, uint64_t n) { raw->counts[i] += n; }
  void AddDigest(Digest digest) {
    raw->digest.low += digest.low;
    raw->digest.high += digest.high;
  }
  void Extremes(uint64_t highest, uint64_t lowest_flipped) {
    raw->highest = std::max(raw->highest, highest);
    raw->lowest_flipped = std::max(raw->lowest_flipped, lowest_flipped);
  }
};

template <typename W, typename Raw, typename Sink>
void EmulateTensorSpan(const TensorItem& item, int64_t first, Sink* sink) {
  using Measure = TileMeasure<EmulatedWarp, Sink, W, Raw>;
  // Two warps, that take turns.
  Measure warps[] = {Measure(item, &kDigestTable, *sink), Measure(item, &kDigestTable, *sink)};
  const int64_t end = std::min(item.count, first + kSpanElements);
  for (int64_t at = first; at < end; at += kTileElements) {
    const int64_t next = at + 2 * kTileElements < end ? at + 2 * kTileElements : -1;
    warps[at / kTileElements % 2].Measure(at, next);
  }
  for (Measure& warp : warps) warp.Finish();
}

// The span of the tensor that begins at element `first`; `results`: of the whole batch.
inline void EmulateSpan(const TensorItem& item, int64_t first, std::byte* results) {
  auto* raw = reinterpret_cast<TensorRaw*>(results + item.result);
  PlainTensorSink sink{raw, reinterpret_cast<uint64_t*>(raw + 1)};
  switch (item.dtype) {
    case DType::kF64:
      return EmulateTensorSpan<uint64_t, uint64_t>(item, first, &sink);
    case DType::kF32:
      return EmulateTensorSpan<uint32_t, uint32_t>(item, first, &sink);
    case DType::kF16:
    case DType::kBF16:
      return EmulateTensorSpan<uint32_t, uint16_t>(item, first, &sink);
    default:
      return EmulateTensorSpan<uint32_t, uint8_t>(item, first, &sink);
  }
}

struct PlainUpdateSink {
  UpdateRaw* raw;

  void Sum(int which, PairSum block) {
    if (!IsFiniteValue(block.high) || !IsFiniteValue(block.low)) {
      raw->beyond[which] += block.high;
      return;
    }
    for (const double x : {block.high, block.low}) {
      const FloatParts parts = PartsOf(x);
      SplitDigits(parts.significand, parts.exponent, [&](int i, int64_t part) {
        raw->wides[which].digit[i] += parts.negative ? -part : part;
      });
    }
  }
  void Count(int which, uint64_t n) { raw->counts[which] += n; }
};

// The block of the update that begins at element `first`.
inline void EmulateBlock(const UpdateItem& item, int64_t first, std::byte* results) {
  PlainUpdateSink sink{reinterpret_cast<UpdateRaw*>(results + item.result)};
  UpdateTile<EmulatedWarp, PlainUpdateSink>(item, &sink).Check(first);
}

inline void EmulateGather(const GatherItem& item, const uint64_t* indices, std::byte* results) {
  for (int64_t i = 0; i < item.samples; ++i) {
    GatherOne(item, i, indices[item.first_span + i], reinterpret_cast<unsigned char*>(results));
  }
}

// All of a batch's items, as one launch.
inline void EmulateTensors(const std::byte* items, int n, std::byte* results) {
  const auto* item = reinterpret_cast<const TensorItem*>(items);
  for (const auto* end = item + n; item != end; ++item) {
    for (int64_t at = 0; at < item->count; at += kSpanElements) EmulateSpan(*item, at, results);
  }
}
inline void EmulateUpdates(const std::byte* items, int n, std::byte* results) {
  const auto* item = reinterpret_cast<const UpdateItem*>(items);
  for (const auto* end = item + n; item != end; ++item) {
    for (int64_t at = 0; at < item->count; at += kUpdateBlock) EmulateBlock(*item, at, results);
  }
}

}  // namespace plumbline
