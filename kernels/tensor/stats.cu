// Tensor statistics on a device: blocks of four warps take spans of 65,536 elements, each of one
// tensor, count in shared memory and add to the tensor's results once, at the span's end.
// Everything added is an integer, so neither the order of blocks nor their number changes a bit.
#include "kernels/core/cuda_batch.h"
#include "kernels/core/cuda_gate.h"
#include "kernels/core/cuda_warp.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/device.h"
#include "kernels/tensor/tile.h"

namespace plumbline {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kTileLanes;
static_assert(kSpanElements / kThreads <= UnitSums<uint16_t>::kMostValues &&
              kSpanElements / kThreads <= UnitSums<uint32_t>::kMostValues);

__device__ const DigestTable kDeviceDigestTable = MakeDigestTable();

struct BlockMemory {
  WideDigits wides[kWarps][kWides];
  uint32_t exponents[ExponentsOf(DType::kF64)];
  uint32_t fields[WordFormat<uint32_t>::kFields];  // of f32; 0: zeros
};

// Where the compiler sees that it is shared memory: its atomics are other instructions.
__shared__ BlockMemory memory;

struct DeviceSink {
  TensorRaw* raw;

  __device__ __forceinline__ void Exponent(int index) { atomicAdd(&memory.exponents[index], 1u); }
  __device__ __forceinline__ void Field(int field) { atomicAdd(&memory.fields[field], 1u); }
  __device__ __forceinline__ void Wide(int which, Uint128 v, int exponent, bool negative) {
    AddWide(&memory.wides[threadIdx.x / kTileLanes][which], v, exponent, negative);
  }
  PLUMB_CALLED static void AddWide(WideDigits* wide, Uint128 v, int exponent, bool negative) {
    SplitDigits(v, exponent, [&](int i, int64_t part) {
      AtomicAdd64(&wide->digit[i], negative ? -part : part);
    });
  }
  __device__ __forceinline__ void Count(int i, uint64_t n) { AtomicAdd64(&raw->counts[i], n); }
  __device__ __forceinline__ void AddDigest(Digest digest) {
    for (int mask = kTileLanes / 2; mask > 0; mask /= 2) {
      digest.low += __shfl_xor_sync(0xffffffffu, static_cast<DeviceWord>(digest.low), mask);
      digest.high += __shfl_xor_sync(0xffffffffu, static_cast<DeviceWord>(digest.high), mask);
    }
    if (threadIdx.x % kTileLanes != 0) return;
    AtomicAdd64(&raw->digest.low, digest.low);
    AtomicAdd64(&raw->digest.high, digest.high);
  }
  __device__ __forceinline__ void Extremes(uint64_t highest, uint64_t lowest_flipped) {
    for (int mask = kTileLanes / 2; mask > 0; mask /= 2) {
      highest = internal::Larger<uint64_t>(
          highest, __shfl_xor_sync(0xffffffffu, static_cast<DeviceWord>(highest), mask));
      lowest_flipped = internal::Larger<uint64_t>(
          lowest_flipped,
          __shfl_xor_sync(0xffffffffu, static_cast<DeviceWord>(lowest_flipped), mask));
    }
    if (threadIdx.x % kTileLanes != 0) return;
    AtomicMax64(&raw->highest, highest);
    AtomicMax64(&raw->lowest_flipped, lowest_flipped);
  }
};

// The fields that plain rounds counted, where the others lie: a normal value of f32 is found by its
// field less one after the subnormals' bits.
__device__ void FlushFields(const uint32_t* fields, uint64_t* counts, uint64_t* exponents) {
  for (int i = threadIdx.x; i < WordFormat<uint32_t>::kFields; i += kThreads) {
    if (fields[i] == 0) continue;
    uint64_t* to =
        i == 0 ? &counts[kCountZero] : &exponents[i - 1 + WordFormat<uint32_t>::kFractionBits];
    AtomicAdd64(to, fields[i]);
  }
}

template <typename W, typename Raw>
__device__ __noinline__ void MeasureSpan(const TensorItem& item, int64_t first, DeviceSink sink) {
  TileMeasure<DeviceWarp, DeviceSink, W, Raw> measure(item, &kDeviceDigestTable, sink);
  const int64_t end = internal::Smaller(item.count, first + kSpanElements);
  const int warp = static_cast<int>(threadIdx.x) / kTileLanes;
  constexpr int64_t kStride = int64_t{kWarps} * kTileElements;
  for (int64_t at = first + warp * kTileElements; at < end; at += kStride) {
    measure.Measure(at, at + kStride < end ? at + kStride : -1);
  }
  measure.Finish();
}

__device__ void MeasureAnySpan(const TensorItem& item, int64_t first, DeviceSink sink) {
  switch (item.dtype) {
    case DType::kF64:
      return MeasureSpan<uint64_t, uint64_t>(item, first, sink);
    case DType::kF32:
      return MeasureSpan<uint32_t, uint32_t>(item, first, sink);
    case DType::kF16:
    case DType::kBF16:
      return MeasureSpan<uint32_t, uint16_t>(item, first, sink);
    default:
      return MeasureSpan<uint32_t, uint8_t>(item, first, sink);
  }
}

// Three blocks a processor: with registers enough that nothing is spilled.
__global__ void __launch_bounds__(kThreads, 3)
    TensorStatsKernel(const TensorItem* items, int count, int64_t spans, std::byte* results,
                      const uint64_t* section) {
  if (Closed(section)) return;
  for (int64_t span = blockIdx.x; span < spans; span += gridDim.x) {
    auto* words = reinterpret_cast<uint32_t*>(&memory);
    for (unsigned i = threadIdx.x; i < sizeof(memory) / 4; i += kThreads) words[i] = 0;
    __syncthreads();
    const TensorItem& item = items[ItemOfSpan(items, count, span)];
    auto* raw = reinterpret_cast<TensorRaw*>(results + item.result);
    MeasureAnySpan(item, (span - item.first_span) * kSpanElements, DeviceSink{raw});
    __syncthreads();
    FlushDigits(&memory.wides[0][0], kWides, kWarps, raw->wides);
    auto* exponents = reinterpret_cast<uint64_t*>(raw + 1);
    const int used =
        static_cast<int>(ExponentsOf(item.dtype == DType::kF64 ? DType::kF64 : DType::kF32));
    for (int i = threadIdx.x; i < used; i += kThreads) {
      if (memory.exponents[i] != 0) AtomicAdd64(&exponents[i], memory.exponents[i]);
    }
    FlushFields(memory.fields, raw->counts, exponents);
    __syncthreads();
  }
}

}  // namespace

int LoadTensorStatsKernel() { return LoadKernel(TensorStatsKernel); }

namespace {

// One launch; `section`: a captured call's, or null.
auto Runner(const BatchShape& batch, int processors, const uint64_t* section) {
  return
      [&batch, processors, section](const std::byte* items, std::byte* results, cudaStream_t on) {
        TensorStatsKernel<<<BatchBlocks(batch.work, processors), kThreads, 0, on>>>(
            reinterpret_cast<const TensorItem*>(items), batch.items, batch.work, results, section);
      };
}

}  // namespace

int LaunchTensorStats(const BatchShape& batch, int processors, void* staging, void* workspace,
                      void* stream) {
  return EnqueueBatch(batch, staging, workspace, stream, Runner(batch, processors, nullptr));
}

int CaptureTensorStats(const BatchShape& batch, int processors, void* workspace,
                       const GraphCall& call, void* stream) {
  return CaptureBatch(batch, workspace, call, stream, Runner(batch, processors, call.section));
}

}  // namespace plumbline
