#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/load.h"
#include "base/parallel.h"
#include "kernels/core/float_mode.h"
#include "kernels/core/strided.h"
#include "kernels/tensor/loops_avx2.h"
#include "kernels/tensor/meter.h"
#include "kernels/tensor/stats.h"
#include "kernels/tensor/tile_host.h"
#include "kernels/tensor/totals.h"
#include "kernels/tensor/words.h"

namespace plumbline {
namespace {

// Returns the digest of bytes that begin at a block's begin; they may end within a word.
template <typename Loops>
Digest DigestBytes(const std::byte* data, size_t bytes, uint64_t first_block) {
  Digest sum;
  const auto add = [&](Digest part) {
    sum.low += part.low;
    sum.high += part.high;
  };
  for (uint64_t block = first_block; bytes > 0; ++block) {
    const DigestKey key = DigestBlockKey(block);
    const size_t size = std::min<size_t>(bytes, kDigestBlockBytes);
    add(Loops::DigestWords(data, size / 8, key));
    if (size % 8 != 0) {
      const size_t place = size / 8;
      uint64_t word = 0;
      std::memcpy(&word, data + 8 * place, size % 8);
      add({DigestWord(word, kDigestTable.low[place] ^ key.low),
           DigestWord(word, kDigestTable.high[place] ^ key.high)});
    }
    data += size;
    bytes -= size;
  }
  return sum;
}

template <typename Loops>
void Widen(const std::byte* data, DType t, int n, uint32_t* words) {
  if (t == DType::kF32) {
    std::memcpy(words, data, static_cast<size_t>(n) * 4);
  } else {
    Loops::Widen(data, t, n, words);
  }
}

template <typename Loops, typename W>
void Widen(const std::byte* data, DType, int n, W* words) {
  std::memcpy(words, data, static_cast<size_t>(n) * sizeof(W));
}

// Elements [first, last) of a view, and the destination of their figures. `first` is the first
// element of a tile.
struct Part {
  const RunReader& reader;
  int64_t first;
  int64_t last;
  TensorTotals* totals;
  int64_t before = 0;  // elements of the tensor before the view's elements: whole tiles
  int64_t count = -1;  // of all of the tensor; -1: not known yet

  // Returns the destinations of the exponents and fits of the chunk at element `i` of the view.
  std::array<TensorLook*, 2> Looks(int64_t i) const {
    static_assert(kFitTile == kChunk);
    const int64_t all = totals->fits_of_all;
    const bool whole = before + i < all && count <= all;
    const bool drawn = (count < 0 || count > all) && FitTileDrawn((before + i) / kFitTile);
    return {whole ? &totals->whole : nullptr, drawn ? &totals->drawn : nullptr};
  }
};

// Buffers for chunks that are not contiguous.
struct ChunkBuffers {
  alignas(64) std::byte at[2][kChunk * 8];
};

// Calls f(bytes, n, first) for each chunk of the part. A chunk stays valid until the second call
// after it, the last two as long as the buffers.
template <typename F>
void ReadChunks(const Part& part, ChunkBuffers* buffers, F f) {
  for (int64_t i = part.first; i < part.last; i += kChunk) {
    const auto n = static_cast<int>(std::min<int64_t>(kChunk, part.last - i));
    f(part.reader.Read(i, n, buffers->at[i / kChunk % 2]), n, i);
  }
}

// Does the same, after the chunk's digest.
template <typename Loops, typename F>
void EachChunk(const Part& part, ChunkBuffers* buffers, F f) {
  const size_t size = DTypeSize(part.totals->dtype);
  ReadChunks(part, buffers, [&](const std::byte* data, int n, int64_t i) {
    const auto index = static_cast<uint64_t>(part.before + i);
    const Digest digest =
        DigestBytes<Loops>(data, static_cast<size_t>(n) * size, index * size / kDigestBlockBytes);
    part.totals->digest.low += digest.low;
    part.totals->digest.high += digest.high;
    part.totals->count += static_cast<uint64_t>(n);
    f(data, n, i);
  });
}

template <typename Loops, typename F>
void EachChunk(const Part& part, F f) {
  ChunkBuffers buffers;
  EachChunk<Loops>(part, &buffers, f);
}

// Chunks as words of W, with zeros after the last if they end within a scaled block.
template <typename W, typename Loops>
class ChunkWords {
 public:
  explicit ChunkWords(DType t) : dtype_(t) {}

  // Calls f(words, n, padding).
  template <typename F>
  void Give(const std::byte* data, int n, F f) {
    constexpr int kBlock = 128;
    if (DTypeSize(dtype_) == sizeof(W) && n == kChunk &&
        reinterpret_cast<uintptr_t>(data) % sizeof(W) == 0) {
      return f(reinterpret_cast<const W*>(data), n, 0);
    }
    Widen<Loops>(data, dtype_, n, words_);
    const int padding = (kBlock - n % kBlock) % kBlock;
    std::fill_n(words_ + n, padding, W{0});
    f(words_, n + padding, padding);
  }

 private:
  DType dtype_;
  alignas(64) W words_[kChunk];
};

template <typename W, typename Loops>
void MeasureFloating(const Part& part) {
  WordMeasure<W, Loops> measure(part.totals);
  ChunkWords<W, Loops> chunk(part.totals->dtype);
  EachChunk<Loops>(part, [&](const std::byte* data, int n, int64_t first) {
    chunk.Give(data, n, [&](const W* words, int all, int padding) {
      measure.Measure(words, all, padding, part.Looks(first));
    });
  });
  measure.Finish();
}

// Does the same for a dtype that is summed by tiles.
template <typename Values, typename W, typename Loops>
void MeasureTiles(const Part& part) {
  WordMeasure<W, Loops> measure(part.totals);
  ChunkWords<W, Loops> chunk(part.totals->dtype);
  HostTile<Values, Loops> sums;
  ChunkBuffers buffers;  // a tile's last chunk may be read when the tile is finished
  Part tile = part;
  for (; tile.first < part.last; tile.first += sums.kElements) {
    tile.last = std::min(part.last, tile.first + sums.kElements);
    uint32_t most = 0;
    EachChunk<Loops>(tile, &buffers, [&](const std::byte* data, int n, int64_t first) {
      chunk.Give(data, n, [&](const W* words, int all, int padding) {
        const uint32_t of_chunk = measure.Measure(words, all, padding, part.Looks(first), false);
        most = std::max(most, of_chunk << (sizeof(W) == 2 ? 16 : 0));
      });
      sums.Add(data, n);
    });
    if (sums.Finish(most, part.totals)) continue;
    ReadChunks(tile, &buffers, [&](const std::byte* data, int n, int64_t) {
      chunk.Give(data, n, [&](const W* words, int all, int) { measure.AddExactly(words, all); });
    });
  }
  measure.Finish();
}

template <typename T, typename Loops>
void MeasureIntegers(const Part& part) {
  EachChunk<Loops>(part, [&](const std::byte* data, int n, int64_t) {
    T low = std::numeric_limits<T>::max();
    T high = std::numeric_limits<T>::min();
    Int128 sum = 0;
    uint64_t zeros = 0;
    for (int i = 0; i < n; ++i) {
      T value = LoadRaw<T>(data, i);
      if (part.totals->dtype == DType::kBool) value = value != 0 ? 1 : 0;
      low = std::min(low, value);
      high = std::max(high, value);
      sum += value;
      zeros += value == 0 ? 1 : 0;
    }
    TensorTotals& totals = *part.totals;
    totals.zero += zeros;
    totals.min = std::min(totals.min, static_cast<double>(low));
    totals.max = std::max(totals.max, static_cast<double>(high));
    totals.sum.Add(static_cast<Uint128>(sum < 0 ? -sum : sum), 0, sum < 0);
  });
}

template <typename Loops>
void MeasureAny(const Part& part) {
  switch (part.totals->dtype) {
    case DType::kF64:
      return MeasureFloating<uint64_t, Loops>(part);
    case DType::kF32:
      return MeasureTiles<F32Values, uint32_t, Loops>(part);
    case DType::kF16:
      return MeasureTiles<F16Values, uint32_t, Loops>(part);
    case DType::kBF16:
      return MeasureTiles<BF16Values, uint16_t, Loops>(part);
    case DType::kI64:
      return MeasureIntegers<int64_t, Loops>(part);
    case DType::kI32:
      return MeasureIntegers<int32_t, Loops>(part);
    case DType::kI16:
      return MeasureIntegers<int16_t, Loops>(part);
    case DType::kI8:
      return MeasureIntegers<int8_t, Loops>(part);
    case DType::kU64:
      return MeasureIntegers<uint64_t, Loops>(part);
    case DType::kU32:
      return MeasureIntegers<uint32_t, Loops>(part);
    case DType::kU16:
      return MeasureIntegers<uint16_t, Loops>(part);
    case DType::kU8:
    case DType::kBool:
      return MeasureIntegers<uint8_t, Loops>(part);
    default:
      return MeasureFloating<uint32_t, Loops>(part);
  }
}

void MeasurePart(const Part& part) {
  const StandardFloatMode mode;
#if defined(__x86_64__)
  static const bool vectors = Avx2Loops::Supported();
  if (vectors) return MeasureAny<Avx2Loops>(part);
#endif
  MeasureAny<PortableLoops>(part);
}

// Measures all of a view of `count` elements; `all`: as Part's count.
TensorTotals MeasureView(const TensorView& view, int64_t count, int64_t before, int threads,
                         int64_t all, int64_t fits_of_all) {
  const RunReader reader(view);
  constexpr int64_t kShare = TensorMeter::kPieceElements;  // whole tiles of any dtype
  const int64_t shares = (count + kShare - 1) / kShare;
  const auto parts =
      static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(shares, 1)));
  TensorTotals empty(view.dtype);
  empty.fits_of_all = fits_of_all;
  std::vector<TensorTotals> totals(static_cast<size_t>(parts), empty);
  ParallelParts(shares, parts, [&](int part, int64_t first, int64_t last) {
    MeasurePart({reader, first * kShare, std::min(last * kShare, count),
                 &totals[static_cast<size_t>(part)], before, all});
  });
  for (size_t i = 1; i < totals.size(); ++i) totals[0].Add(totals[i]);
  return std::move(totals[0]);
}

}  // namespace

absl::Status MeasureTensor(const TensorView& tensor, TensorStats* stats, int threads,
                           int64_t fits_of_all) {
  int64_t count = 0;
  if (absl::Status status = CheckHostTensor(tensor, "tensor", &count); !status.ok()) return status;
  *stats = MeasureView(tensor, count, 0, threads, count, fits_of_all).Finish();
  return absl::OkStatus();
}

static_assert(TensorMeter::kPieceElements % kChunk == 0 &&
              TensorMeter::kPieceElements * 2 % kSumTileBytes == 0);

TensorMeter::TensorMeter(DType dtype) : totals_(dtype) {}

absl::Status TensorMeter::Add(const void* data, int64_t count, int threads) {
  if (taken_ % kPieceElements != 0)
    return absl::FailedPreconditionError("expected a piece of whole tiles before this one");
  const TensorView view = TensorView::Dense(data, totals_.dtype, count);
  int64_t checked = 0;
  if (absl::Status status = CheckHostTensor(view, "piece", &checked); !status.ok()) return status;
  totals_.Add(MeasureView(view, count, taken_, threads, -1, totals_.fits_of_all));
  taken_ += count;
  return absl::OkStatus();
}

}  // namespace plumbline
