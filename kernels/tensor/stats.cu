// Tensor statistics on a device: blocks of four warps take tiles of 64 KiB, count in shared memory
// and add to a tensor's results once, after their last tile of it. Everything added there is an
// integer, so neither the order of blocks nor their number changes a bit.
#include "kernels/core/cuda_batch.h"
#include "kernels/core/cuda_gate.h"
#include "kernels/core/cuda_warp.h"
#include "kernels/sample/eager.h"
#include "kernels/sample/replay.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/codes.h"
#include "kernels/tensor/device.h"
#include "kernels/tensor/lean.h"
#include "kernels/tensor/tile.h"

namespace plumbline {
namespace {

constexpr int kThreads = kSumThreads;
constexpr int kWarps = kTileWarps;
static_assert(kWarps == 4);
constexpr int64_t kMostTiles = 1 << 14;  // between flushes: counts have 32 bits

__device__ const DigestTable kDeviceDigestTable = MakeDigestTable();

struct BlockMemory {
  WideDigits wides[kWides];
  uint64_t extremes[2];  // like TensorRaw's
  uint64_t digest[2];
  uint32_t counts[kTensorCounts];
  uint32_t codes[kWarps][kCodes];
  uint32_t exponents[ExponentsOf(DType::kF64)];
  uint32_t fields[WordFormat<uint32_t>::kFields];  // of f32
};

// Declared here so that the compiler knows that it is shared memory, which has different atomic
// instructions.
__shared__ BlockMemory memory;
__shared__ TileKeys keys;
__shared__ QuarterFigures quarters[kWarps];

struct DeviceSink {
  __device__ __forceinline__ void Exponent(int index) { atomicAdd(&memory.exponents[index], 1u); }
  __device__ __forceinline__ void Field(int field) { atomicAdd(&memory.fields[field], 1u); }
  // One shift and one logical operation give the byte's place.
  __device__ __forceinline__ void Code(uint32_t word, int k) {
    static_assert(kCodes * sizeof(uint32_t) == 1 << 10);
    const uint32_t shifted = k == 0 ? word << 2 : word >> (8 * k - 2);
    const uint32_t at = (shifted & 0x3fcu) | (threadIdx.x / kTileLanes) << 10;
    atomicAdd(reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(memory.codes) + at), 1u);
  }
  __device__ __forceinline__ void Wide(int which, Uint128 v, int exponent, bool negative) {
    AddWide(&memory.wides[which], v, exponent, negative);
  }
  PLUMB_CALLED static void AddWide(WideDigits* wide, Uint128 v, int exponent, bool negative) {
    SplitDigits(v, exponent, [&](int i, int64_t part) {
      AtomicAdd64(&wide->digit[i], negative ? -part : part);
    });
  }
  __device__ __forceinline__ void Count(int i, uint32_t n) { atomicAdd(&memory.counts[i], n); }
  __device__ __forceinline__ void AddDigest(Digest digest) {
    for (int mask = kTileLanes / 2; mask > 0; mask /= 2) {
      digest.low += __shfl_xor_sync(0xffffffffu, static_cast<DeviceWord>(digest.low), mask);
      digest.high += __shfl_xor_sync(0xffffffffu, static_cast<DeviceWord>(digest.high), mask);
    }
    if (threadIdx.x % kTileLanes != 0) return;
    AtomicAdd64(&memory.digest[0], digest.low);
    AtomicAdd64(&memory.digest[1], digest.high);
  }
  __device__ __forceinline__ void Extremes(uint64_t highest, uint64_t lowest_flipped) {
    AtomicMax64(&memory.extremes[0], highest);
    AtomicMax64(&memory.extremes[1], lowest_flipped);
  }
};

// This block's spans of an item, at a constant distance.
struct Spans {
  int64_t next;
  int64_t end;
  int64_t first_span;
  __device__ __forceinline__ int64_t First(int64_t elements) const {
    return (next - first_span) * elements;
  }
};

// Computes the keys of the tile's digest blocks, with one thread each.
__device__ __forceinline__ void MakeKeys(int64_t first, int element_bytes) {
  const auto block = static_cast<uint64_t>(first * element_bytes / kDigestBlockBytes);
  __syncthreads();
  if (threadIdx.x < kTileBlocks) keys.block[threadIdx.x] = DigestBlockKey(block + threadIdx.x);
  __syncthreads();
}

template <typename Values>
__device__ __noinline__ int64_t MeasureTiles(const TensorItem& item, Spans spans) {
  using Lean = LeanTiles<DeviceWarp, DeviceSink, Values>;
  const int warp = static_cast<int>(threadIdx.x) / kTileLanes;
  Lean lean(item, warp, &kDeviceDigestTable, DeviceSink{});
  for (; spans.next < spans.end; spans.next += gridDim.x) {
    const int64_t first = spans.First(Lean::kElements);
    MakeKeys(first, sizeof(typename Values::Raw));
    const QuarterFigures quarter = lean.Measure(first, keys);
    if (threadIdx.x % kTileLanes == 0) quarters[warp] = quarter;
    __syncthreads();
    lean.Settle(first, Judge<Values>(quarters));
  }
  lean.Finish();
  return spans.next;
}

__device__ __noinline__ int64_t MeasureCodes(const TensorItem& item, Spans spans) {
  CodeTiles<DeviceWarp, DeviceSink> codes(item, static_cast<int>(threadIdx.x) / kTileLanes,
                                          &kDeviceDigestTable, DeviceSink{});
  for (; spans.next < spans.end; spans.next += gridDim.x) {
    const int64_t first = spans.First(kSpanBytes);
    MakeKeys(first, 1);
    codes.Measure(first, keys);
  }
  codes.Finish();
  return spans.next;
}

__device__ __noinline__ int64_t MeasureF64(const TensorItem& item, Spans spans) {
  using Measure = TileMeasure<DeviceWarp, DeviceSink, uint64_t, uint64_t>;
  Measure measure(item, &kDeviceDigestTable, DeviceSink{});
  const int warp = static_cast<int>(threadIdx.x) / kTileLanes;
  for (; spans.next < spans.end; spans.next += gridDim.x) {
    const int64_t first = spans.First(SpanElements(DType::kF64));
    const int64_t end = internal::Smaller(item.count, first + SpanElements(DType::kF64));
    PLUMB_LOOP for (int64_t at = first + warp * kTileElements; at < end;
                    at += kWarps * kTileElements) {
      measure.Measure(at, {true, item.whole || FitTileDrawn(at / kFitTile), true});
    }
  }
  measure.Finish();
  return spans.next;
}

__device__ int64_t MeasureAny(const TensorItem& item, const Spans& spans) {
  switch (item.dtype) {
    case DType::kF64:
      return MeasureF64(item, spans);
    case DType::kF32:
      return MeasureTiles<F32Values>(item, spans);
    case DType::kF16:
      return MeasureTiles<F16Values>(item, spans);
    case DType::kBF16:
      return MeasureTiles<BF16Values>(item, spans);
    default:
      return MeasureCodes(item, spans);
  }
}

// Adds the block's counts to the item's results.
__device__ __noinline__ void Flush(const TensorItem& item, TensorRaw* raw) {
  if (DTypeSize(item.dtype) == 1) {
    for (int code = threadIdx.x; code < kCodes; code += kThreads) {
      uint32_t n = 0;
      for (int w = 0; w < kWarps; ++w) n += memory.codes[w][code];
      GiveCodes(DeviceSink{}, item.dtype, static_cast<uint32_t>(code), n);
    }
    __syncthreads();
  }
  FlushDigits(memory.wides, kWides, 1, raw->wides);
  for (int i = threadIdx.x; i < kTensorCounts; i += kThreads) {
    if (memory.counts[i] != 0) AtomicAdd64(&raw->counts[i], memory.counts[i]);
  }
  if (threadIdx.x == 0) {
    AtomicAdd64(&raw->digest.low, memory.digest[0]);
    AtomicAdd64(&raw->digest.high, memory.digest[1]);
    AtomicMax64(&raw->highest, memory.extremes[0]);
    AtomicMax64(&raw->lowest_flipped, memory.extremes[1]);
  }
  auto* exponents = reinterpret_cast<uint64_t*>(raw + 1);
  const int used = static_cast<int>(DeviceExponents(item.dtype));
  for (int i = threadIdx.x; i < used; i += kThreads) {
    if (memory.exponents[i] != 0) AtomicAdd64(&exponents[i], memory.exponents[i]);
  }
  // A normal value of f32 has the index of its field less one, after the subnormals' bits.
  for (int i = threadIdx.x; i < WordFormat<uint32_t>::kFields; i += kThreads) {
    if (i == 0 || memory.fields[i] == 0) continue;
    AtomicAdd64(&exponents[i - 1 + WordFormat<uint32_t>::kFractionBits], memory.fields[i]);
  }
}

// The value that a captured call's block read. It is in shared memory, because the hot loops need
// the registers.
__shared__ uint64_t reported;

// Called for a captured call, before and after the block's work.
__device__ __noinline__ void BeginReplayed(const GraphCall& call) {
  static_assert(sizeof(ReplayPlace) <= sizeof(memory));
  const uint64_t section = BeginBlock(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x,
                                      reinterpret_cast<ReplayPlace*>(&memory));
  if (threadIdx.x == 0) reported = section;
  __syncthreads();
}
__device__ __noinline__ void EndReplayed(const GraphCall& call, std::byte* results,
                                         uint64_t bytes) {
  EndBlock(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x, reported,
           reinterpret_cast<uint32_t*>(results), bytes / sizeof(uint32_t),
           reinterpret_cast<ReplayPlace*>(&memory));
}

// Called for a call outside of graphs.
__device__ __noinline__ void BeginEagerly(const SampledPart& sampled) {
  BeginEager(DeviceBlock(), sampled, kThreads, blockIdx.x, gridDim.x);
}
__device__ __noinline__ void EndEagerly(const EagerCall& eager) {
  EndEager(DeviceBlock(), eager, kThreads, gridDim.x, reinterpret_cast<uint32_t*>(&memory));
}

// Measures this block's spans of all items, at a constant distance, and flushes when the item
// changes.
__device__ __forceinline__ void MeasureItems(const TensorItem* items, int count, int64_t spans,
                                             std::byte* results) {
  for (int64_t span = blockIdx.x; span < spans;) {
    auto* words = reinterpret_cast<uint32_t*>(&memory);
    for (unsigned i = threadIdx.x; i < sizeof(memory) / 4; i += kThreads) words[i] = 0;
    __syncthreads();
    const int at = ItemOfSpan(items, count, span);
    const TensorItem& item = items[at];
    const int64_t after = at + 1 < count ? items[at + 1].first_span : spans;
    const int64_t most = span + kMostTiles * static_cast<int64_t>(gridDim.x);
    span = MeasureAny(item, {span, internal::Smaller(after, most), item.first_span});
    __syncthreads();
    Flush(item, reinterpret_cast<TensorRaw*>(results + item.result));
    __syncthreads();
  }
}

using TensorArguments = ItemArguments<TensorItem, kTensorsOfLaunch>;
static_assert(sizeof(TensorArguments) + sizeof(SampledPart) + sizeof(EagerCall) +
                  sizeof(GraphCall) + 2 * sizeof(void*) <=
              kArgumentBytes);

// Eight blocks per processor. `call`: of a graph, whose item and results are in device memory; or
// all null, then the items are arguments.
__global__ void __launch_bounds__(kThreads, 8)
    TensorStatsKernel(const __grid_constant__ TensorArguments arguments,
                      const __grid_constant__ SampledPart sampled,
                      const __grid_constant__ EagerCall eager, const TensorItem* items,
                      std::byte* results, const __grid_constant__ GraphCall call) {
  if (call.slot == nullptr) {
    BeginEagerly(sampled);
    MeasureItems(arguments.items(), arguments.count, arguments.spans, results);
    EndEagerly(eager);
    return;
  }
  BeginReplayed(call);
  if (reported != 0) MeasureItems(items, arguments.count, arguments.spans, results);
  EndReplayed(call, results, arguments.result_bytes);
}

}  // namespace

int LoadTensorStatsKernel() { return LoadKernel(TensorStatsKernel); }

int LaunchTensorStats(const BatchShape& batch, int processors, const BatchMemory& memory,
                      const SampledPart& sampled, void* stream) {
  static const SampledPart kNone{};
  const auto run = [&](const TensorArguments& arguments, int64_t span, uint64_t result) {
    const EagerCall eager = EagerAt(batch, memory, result, arguments.result_bytes);
    TensorStatsKernel<<<BatchBlocks(arguments.spans, processors), kThreads, 0,
                        static_cast<cudaStream_t>(stream)>>>(
        arguments, span == 0 && result == 0 ? sampled : kNone, eager, nullptr,
        reinterpret_cast<std::byte*>(eager.results), GraphCall());
  };
  if (memory.workspace == nullptr) return cudaErrorInvalidValue;
  return EnqueueBatch<TensorItem, kTensorsOfLaunch>(batch, memory, run);
}

int CaptureTensorStats(const BatchShape& batch, int processors, void* workspace,
                       const GraphCall& call, void* stream) {
  const auto run = [&](const std::byte* items, std::byte* results, cudaStream_t on) {
    TensorArguments arguments;
    arguments.count = batch.items;
    arguments.spans = batch.work;
    arguments.result_bytes = batch.result_bytes;
    TensorStatsKernel<<<BatchBlocks(batch.work, processors), kThreads, 0, on>>>(
        arguments, SampledPart(), EagerCall(), reinterpret_cast<const TensorItem*>(items), results,
        call);
  };
  return CaptureBatch(batch, workspace, call, stream, run);
}

}  // namespace plumbline
