// Update checks on a device: a warp takes blocks of 4,096 elements, adds them up as the CPU
// reference does, and adds each block's pair of doubles to the update's exact sums.
#include "kernels/core/cuda_batch.h"
#include "kernels/core/cuda_gate.h"
#include "kernels/core/cuda_warp.h"
#include "kernels/sample/eager.h"
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
      wides[which].digit[i] += parts.negative ? -part : part;  // called by one lane of the warp at
                                                               // a time
    });
  }
};

__device__ __forceinline__ void CheckUpdatesOfLaunch(const UpdateItem* items, int count,
                                                     int64_t spans, std::byte* results) {
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

using UpdateArguments = ItemArguments<UpdateItem, kUpdatesOfLaunch>;
static_assert(sizeof(UpdateArguments) + sizeof(SampledPart) + sizeof(EagerCall) +
                  sizeof(GraphCall) + 2 * sizeof(void*) <=
              kArgumentBytes);

// `call`: of a graph, whose item and results are in device memory; or all null, then the items are
// arguments.
__global__ void __launch_bounds__(kThreads)
    UpdateCheckKernel(const __grid_constant__ UpdateArguments arguments,
                      const __grid_constant__ SampledPart sampled,
                      const __grid_constant__ EagerCall eager, const UpdateItem* items,
                      std::byte* results, const __grid_constant__ GraphCall call) {
  __shared__ uint64_t memory[(sizeof(ReplayPlace) + 7) / 8];
  auto* place = reinterpret_cast<ReplayPlace*>(memory);
  const bool captured = call.slot != nullptr;
  uint64_t reported = 0;
  if (captured) {
    reported = BeginBlock(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x, place);
  } else {
    BeginEager(DeviceBlock(), sampled, kThreads, blockIdx.x, gridDim.x);
  }
  if (!captured || reported != 0)
    CheckUpdatesOfLaunch(captured ? items : arguments.items(), arguments.count, arguments.spans,
                         results);
  if (captured) {
    EndBlock(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x, reported,
             reinterpret_cast<uint32_t*>(results), arguments.result_bytes / sizeof(uint32_t),
             place);
  } else {
    EndEager(DeviceBlock(), eager, kThreads, gridDim.x, reinterpret_cast<uint32_t*>(memory));
  }
}

}  // namespace

int LoadUpdateCheckKernel() { return LoadKernel(UpdateCheckKernel); }

int LaunchUpdateChecks(const BatchShape& batch, int processors, const BatchMemory& memory,
                       const SampledPart& sampled, void* stream) {
  static const SampledPart kNone{};
  const auto run = [&](const UpdateArguments& arguments, int64_t span, uint64_t result) {
    const EagerCall eager = EagerAt(batch, memory, result, arguments.result_bytes);
    UpdateCheckKernel<<<BatchBlocks(arguments.spans, processors), kThreads, 0,
                        static_cast<cudaStream_t>(stream)>>>(
        arguments, span == 0 && result == 0 ? sampled : kNone, eager, nullptr,
        reinterpret_cast<std::byte*>(eager.results), GraphCall());
  };
  if (memory.workspace == nullptr) return cudaErrorInvalidValue;
  return EnqueueBatch<UpdateItem, kUpdatesOfLaunch>(batch, memory, run);
}

int CaptureUpdateChecks(const BatchShape& batch, int processors, void* workspace,
                        const GraphCall& call, void* stream) {
  const auto run = [&](const std::byte* items, std::byte* results, cudaStream_t on) {
    UpdateArguments arguments;
    arguments.count = batch.items;
    arguments.spans = batch.work;
    arguments.result_bytes = batch.result_bytes;
    UpdateCheckKernel<<<BatchBlocks(batch.work, processors), kThreads, 0, on>>>(
        arguments, SampledPart(), EagerCall(), reinterpret_cast<const UpdateItem*>(items), results,
        call);
  };
  return CaptureBatch(batch, workspace, call, stream, run);
}

}  // namespace plumbline
