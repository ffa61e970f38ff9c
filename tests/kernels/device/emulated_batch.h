// Runs the device kernels' code over a batch's items with 32 emulated lanes: computes the results
// of a launch, added to zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sample/batch.h"
#include "kernels/tensor/codes.h"
#include "kernels/tensor/lean.h"
#include "kernels/tensor/tile.h"
#include "kernels/update/tile.h"
#include "tests/kernels/device/emulated_warp.h"

namespace plumbline {

// Adds to the results like the device's atomics.
struct PlainTensorSink {
  TensorRaw* raw;
  uint64_t* exponents;
  uint32_t* codes;  // kCodes of them, for a span

  void Exponent(int index) { ++exponents[index]; }
  void Field(int field) {
    if (field != 0) ++exponents[field - 1 + 23];
  }
  void Code(uint32_t word, int k) { ++codes[word >> (8 * k) & 0xff]; }
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

inline TileKeys KeysAt(const TensorItem& item, int64_t first) {
  const auto bytes = static_cast<uint64_t>(first) * DTypeSize(item.dtype);
  TileKeys keys;
  for (uint64_t b = 0; b < kTileBlocks; ++b)
    keys.block[b] = DigestBlockKey(bytes / kDigestBlockBytes + b);
  return keys;
}

// Runs the four warps of a block, one after another between its barriers.
template <typename Values, typename Sink>
void EmulateTile(const TensorItem& item, int64_t first, const Sink& sink) {
  using Lean = LeanTiles<EmulatedWarp, Sink, Values>;
  std::vector<Lean> warps;
  QuarterFigures quarters[kTileWarps];
  const TileKeys keys = KeysAt(item, first);
  for (int w = 0; w < kTileWarps; ++w) {
    warps.emplace_back(item, w, &kDigestTable, sink);
    quarters[w] = warps.back().Measure(first, keys);
  }
  for (Lean& warp : warps) {
    warp.Settle(first, Judge<Values>(quarters));
    warp.Finish();
  }
}

template <typename Sink>
void EmulateCodes(const TensorItem& item, int64_t first, const Sink& sink) {
  const TileKeys keys = KeysAt(item, first);
  std::fill_n(sink.codes, kCodes, 0);
  for (int w = 0; w < kTileWarps; ++w) {
    CodeTiles<EmulatedWarp, Sink> codes(item, w, &kDigestTable, sink);
    codes.Measure(first, keys);
    codes.Finish();
  }
  for (uint32_t code = 0; code < kCodes; ++code)
    GiveCodes(sink, item.dtype, code, sink.codes[code]);
}

template <typename Sink>
void EmulateF64(const TensorItem& item, int64_t first, const Sink& sink) {
  TileMeasure<EmulatedWarp, Sink, uint64_t, uint64_t> measure(item, &kDigestTable, sink);
  const int64_t end = std::min(item.count, first + SpanElements(item.dtype));
  for (int64_t at = first; at < end; at += kTileElements)
    measure.Measure(at, {true, item.whole || FitTileDrawn(at / kFitTile), true});
  measure.Finish();
}

template <typename Sink>
void EmulateTensorSpan(const TensorItem& item, int64_t first, const Sink& sink) {
  switch (item.dtype) {
    case DType::kF64:
      return EmulateF64(item, first, sink);
    case DType::kF32:
      return EmulateTile<F32Values>(item, first, sink);
    case DType::kF16:
      return EmulateTile<F16Values>(item, first, sink);
    case DType::kBF16:
      return EmulateTile<BF16Values>(item, first, sink);
    default:
      return EmulateCodes(item, first, sink);
  }
}

// Runs the span of the tensor that begins at element `first`; `results`: of the whole batch.
inline void EmulateSpan(const TensorItem& item, int64_t first, std::byte* results) {
  auto* raw = reinterpret_cast<TensorRaw*>(results + item.result);
  uint32_t codes[kCodes];
  EmulateTensorSpan(item, first, PlainTensorSink{raw, reinterpret_cast<uint64_t*>(raw + 1), codes});
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

// Runs the block of the update that begins at element `first`.
inline void EmulateBlock(const UpdateItem& item, int64_t first, std::byte* results) {
  PlainUpdateSink sink{reinterpret_cast<UpdateRaw*>(results + item.result)};
  UpdateTile<EmulatedWarp, PlainUpdateSink>(item, &sink).Check(first);
}

inline void EmulateGather(const GatherItem& item, const uint64_t* indices, std::byte* results) {
  for (int64_t i = 0; i < item.samples; ++i) {
    GatherOne(item, i, indices[item.first_span + i], reinterpret_cast<unsigned char*>(results));
  }
}

// Runs all of a batch's items, as in one launch.
inline void EmulateTensors(const std::byte* items, int n, std::byte* results) {
  const auto* item = reinterpret_cast<const TensorItem*>(items);
  for (const auto* end = item + n; item != end; ++item) {
    for (int64_t at = 0; at < item->count; at += SpanElements(item->dtype))
      EmulateSpan(*item, at, results);
  }
}
inline void EmulateUpdates(const std::byte* items, int n, std::byte* results) {
  const auto* item = reinterpret_cast<const UpdateItem*>(items);
  for (const auto* end = item + n; item != end; ++item) {
    for (int64_t at = 0; at < item->count; at += kUpdateBlock) EmulateBlock(*item, at, results);
  }
}

}  // namespace plumbline
