// Sampled gathers on a device: one thread a sample.
#include "kernels/core/cuda_batch.h"
#include "kernels/sample/batch.h"
#include "kernels/sample/device.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    GatherKernel(const GatherItem* items, int count, int64_t samples, unsigned char* results) {
  const auto* indices = reinterpret_cast<const uint64_t*>(items + count);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < samples;
       i += stride) {
    const GatherItem& item = items[ItemOfSpan(items, count, i)];
    GatherOne(item, i - item.first_span, indices[i], results);
  }
}

}  // namespace

int LoadGatherKernel() { return LoadKernel(GatherKernel); }

int LaunchGathers(const BatchShape& batch, int processors, void* staging, void* workspace,
                  void* stream) {
  const auto run = [&](const std::byte* items, std::byte* results, cudaStream_t on) {
    const int64_t blocks = (batch.work + kThreads - 1) / kThreads;
    GatherKernel<<<BatchBlocks(blocks, processors), kThreads, 0, on>>>(
        reinterpret_cast<const GatherItem*>(items), batch.items, batch.work,
        reinterpret_cast<unsigned char*>(results));
  };
  return EnqueueBatch(batch, staging, workspace, stream, run);
}

}  // namespace plumbline
