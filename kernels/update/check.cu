// Update checks on a device: a warp takes blocks of 4,096 elements, adds them up as the CPU
// reference does, and adds each block's pair of doubles to the update's exact sums.
#include "kernels/core/cuda_batch.h"
#include "kernels/core/cuda_gate.h"
#include "kernels/core/cuda_warp.h"
#include "kernels/sample/replay.h"
#include "kernels/update/batch.h"
#include "kernels/update/device.h"
#include "kernels/update/tile.h"

namespace plumbline {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kUpdateLanes;

struct DeviceSink {
  WideDigits* wides;  // [kUpdateSums], of this warp, in shared memory
  UpdateRaw* raw;

  __device__ __forceinline__ void Sum(int which, PairSum block) {
    if (!IsFiniteValue(block.high) || !IsFiniteValue(block.low)) {
      atomicAdd(&raw->beyond[which], block.high);
      return;
    }
    Add(which, block.high);
    Add(which, block.low);
  }
  __device__ __forceinline__ void Count(int which, uint64_t n) {
    AtomicAdd64(&raw->counts[which], n);
  }

 private:
  __device__ __forceinline__ void Add(int which, double x) {
    const FloatParts parts = PartsOf(x);
    SplitDigits(parts.significand, parts.exponent, [&](int i, int64_t part) {
      wides[which].digit[i] += parts.negative ? -part : part;  // one lane of the warp at a time
    });
  }
};

__device__ __forceinline__ void CheckItems(const UpdateItem* items, int count, int64_t spans,
                                           std::byte* results) {
  __shared__ WideDigits wides[kWarps][kUpdateSums];
  const int warp = static_cast<int>(threadIdx.x) / kUpdateLanes;
  for (int64_t span = blockIdx.x; span < spans; span += gridDim.x) {
    auto* words = reinterpret_cast<uint32_t*>(&wides);
    for (unsigned i = threadIdx.x; i < sizeof(wides) / 4; i += kThreads) words[i] = 0;
    __syncthreads();
    const UpdateItem& item = items[ItemOfSpan(items, count, span)];
    auto* raw = reinterpret_cast<UpdateRaw*>(results + item.result);
    DeviceSink sink{wides[warp], raw};
    UpdateTile<DeviceWarp, DeviceSink> tile(item, &sink);
    const int64_t first = (span - item.first_span) * kUpdateSpanBlocks * kUpdateBlock;
    for (int64_t block = warp; block < kUpdateSpanBlocks; block += kWarps) {
      const int64_t at = first + block * kUpdateBlock;
      if (at < item.count) tile.Check(at);
    }
    __syncthreads();
    FlushDigits(&wides[0][0], kUpdateSums, kWarps, raw->wides);
    __syncthreads();
  }
}

// `call`: of a graph, or of nulls.
__global__ void __launch_bounds__(kThreads)
    UpdateCheckKernel(const UpdateItem* items, int count, int64_t spans, std::byte* results,
                      uint64_t result_bytes, const __grid_constant__ GraphCall call) {
  __shared__ uint64_t memory[(sizeof(ReplayPlace) + 7) / 8];
  auto* place = reinterpret_cast<ReplayPlace*>(memory);
  const bool captured = call.slot != nullptr;
  const uint64_t told =
      captured ? BeginBlock(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x, place) : 0;
  if (!captured || told != 0) CheckItems(items, count, spans, results);
  if (!captured) return;
  EndBlock(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x, told,
           reinterpret_cast<uint32_t*>(results), result_bytes / sizeof(uint32_t), place);
}

}  // namespace

int LoadUpdateCheckKernel() { return LoadKernel(UpdateCheckKernel); }

namespace {

// One launch; `call`: of a graph, or of nulls.
auto Runner(const BatchShape& batch, int processors, const GraphCall& call) {
  return [&batch, processors, &call](const std::byte* items, std::byte* results, cudaStream_t on) {
    UpdateCheckKernel<<<BatchBlocks(batch.work, processors), kThreads, 0, on>>>(
        reinterpret_cast<const UpdateItem*>(items), batch.items, batch.work, results,
        batch.result_bytes, call);
  };
}

}  // namespace

int LaunchUpdateChecks(const BatchShape& batch, int processors, void* staging, void* workspace,
                       void* stream) {
  const GraphCall none;
  return EnqueueBatch(batch, staging, workspace, stream, Runner(batch, processors, none));
}

int CaptureUpdateChecks(const BatchShape& batch, int processors, void* workspace,
                        const GraphCall& call, void* stream) {
  return CaptureBatch(batch, workspace, call, stream, Runner(batch, processors, call));
}

}  // namespace plumbline
