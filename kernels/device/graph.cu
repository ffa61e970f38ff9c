// Kernels for graphs only: the sampled parts of a product, whose plan changes from step to step.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/core/cuda_batch.h"
#include "kernels/core/cuda_gate.h"
#include "kernels/device/graph_device.h"
#include "kernels/device/graph_product.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 256;  // the bus is slower than a few blocks

__global__ void __launch_bounds__(kThreads) GraphProductKernel(GraphCall call) {
  __shared__ uint64_t memory[(sizeof(PlanPlace) + 7) / 8];
  GatherPlanned(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x,
                reinterpret_cast<PlanPlace*>(memory));
}

}  // namespace

int LoadGraphKernels() { return LoadKernel(GraphProductKernel); }

int CaptureProduct(int64_t threads, const GraphCall& call, void* stream) {
  const int64_t blocks = std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, kMostBlocks);
  GraphProductKernel<<<static_cast<unsigned>(blocks), kThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(call);
  return cudaGetLastError();
}

}  // namespace plumbline
