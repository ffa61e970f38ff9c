// What graphs alone need of kernels: the sampled parts of a product whose plan changes from step to
// step, and the launch that ends a captured call.
#include <algorithm>

#include "kernels/cuda_batch.h"
#include "kernels/cuda_gate.h"
#include "kernels/graph_device.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;
constexpr int kDeliverThreads = 1024;  // one block: it writes the slot that all of it reads
constexpr int64_t kMostBlocks = 256;   // the bus is slower than a few blocks

__global__ void __launch_bounds__(kThreads) GraphProductKernel(const GraphSlot* slot) {
  if (Closed(slot)) return;
  const GraphWork& work = *WorkOf(*slot);
  if (work.plan_at == 0) return;
  // The plan is read across the bus once a block.
  __shared__ ProductPlan plan;
  const auto* from = reinterpret_cast<const uint32_t*>(SectionOf(*slot) + work.plan_at);
  auto* to = reinterpret_cast<uint32_t*>(&plan);
  for (unsigned i = threadIdx.x; i < sizeof(ProductPlan) / 4; i += kThreads) to[i] = from[i];
  __syncthreads();
  unsigned char* out = SectionOf(*slot) + work.plan_to;
  const int64_t count = ProductThreads(plan);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    GatherProductOne(plan, i, out);
  }
}

__global__ void __launch_bounds__(kDeliverThreads)
    DeliverKernel(uint32_t* results, uint64_t words, GraphSlot* slot) {
  const GraphSlot now = *slot;
  if (now.section != 0) {
    TakeResults(now, results, words, threadIdx.x, kDeliverThreads);
    GatherElements(now, threadIdx.x, kDeliverThreads);
    CopyRows(now, threadIdx.x, kDeliverThreads);
  }
  __syncthreads();
  if (threadIdx.x == 0) Advance(slot);
}

}  // namespace

int LoadGraphKernels() {
  const cudaError_t error = LoadKernel(GraphProductKernel);
  return error != cudaSuccess ? error : LoadKernel(DeliverKernel);
}

int CaptureProduct(int64_t threads, GraphSlot* slot, void* stream) {
  const int64_t blocks = std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, kMostBlocks);
  GraphProductKernel<<<static_cast<unsigned>(blocks), kThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(slot);
  const cudaError_t code = cudaGetLastError();
  return code != cudaSuccess ? code : CaptureDeliver(nullptr, 0, slot, stream);
}

int CaptureDeliver(void* results, uint64_t bytes, GraphSlot* slot, void* stream) {
  DeliverKernel<<<1, kDeliverThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint32_t*>(results), bytes / sizeof(uint32_t), slot);
  return cudaGetLastError();
}

}  // namespace plumbline
