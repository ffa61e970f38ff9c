// Sampled gathers on a device: one thread per sample.
#include "kernels/core/cuda_batch.h"
#include "kernels/sample/batch.h"
#include "kernels/sample/device.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;
using GatherArguments = ItemArguments<GatherItem, kGathersOfLaunch>;
static_assert(sizeof(GatherArguments) + 2 * sizeof(void*) <= kArgumentBytes);

// Reads each index once across the bus, and writes each element across the bus, in order.
__global__ void __launch_bounds__(kThreads)
    GatherKernel(const __grid_constant__ GatherArguments arguments, const uint64_t* indices,
                 unsigned char* results) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < arguments.spans;
       i += stride) {
    const GatherItem& item = arguments.items()[ItemOfSpan(arguments.items(), arguments.count, i)];
    GatherOne(item, i - item.first_span, indices[i], results);
  }
}

}  // namespace

int LoadGatherKernel() { return LoadKernel(GatherKernel); }

int LaunchGathers(const BatchShape& batch, int processors, const BatchMemory& memory,
                  void* stream) {
  auto* staging = static_cast<unsigned char*>(memory.staging);
  const auto* indices = reinterpret_cast<const uint64_t*>(
      staging + static_cast<size_t>(batch.items) * sizeof(GatherItem));
  const auto run = [&](const GatherArguments& arguments, int64_t span, uint64_t result) {
    const int64_t blocks = (arguments.spans + kThreads - 1) / kThreads;
    GatherKernel<<<BatchBlocks(blocks, processors), kThreads, 0,
                   static_cast<cudaStream_t>(stream)>>>(arguments, indices + span,
                                                        staging + batch.results_at() + result);
  };
  return EnqueueBatch<GatherItem, kGathersOfLaunch>(batch, memory, run);
}

}  // namespace plumbline
