// What graphs alone need of kernels: the sampled parts of a product whose plan changes from step to
// step, and the launch that ends a captured call.
#include <algorithm>

#include "kernels/core/capture.h"
#include "kernels/core/cuda_batch.h"
#include "kernels/core/cuda_gate.h"
#include "kernels/device/graph_deliver.h"
#include "kernels/device/graph_device.h"
#include "kernels/device/graph_product.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kDeliverBlocks =
    16;                               // a row may be long, and the bus wants many bytes under way
constexpr int64_t kMostBlocks = 256;  // the bus is slower than a few blocks

__global__ void BeginKernel(GraphCall call) { BeginReplay(call); }

__global__ void __launch_bounds__(kThreads) GraphProductKernel(GraphCall call) {
  __shared__ PlanPlace place;
  __shared__ ProductPlan plan;
  GatherPlanned(DeviceBlock(), call, kThreads, static_cast<int64_t>(blockIdx.x) * kThreads,
                static_cast<int64_t>(gridDim.x) * kThreads, &place, &plan);
}

__global__ void __launch_bounds__(kThreads)
    DeliverKernel(uint32_t* results, uint64_t words, GraphCall call) {
  __shared__ uint64_t memory[(sizeof(DeliverPlace) + 7) / 8];
  DeliverReplay(DeviceBlock(), call, kThreads, blockIdx.x, gridDim.x, results, words,
                reinterpret_cast<DeliverPlace*>(memory));
}

}  // namespace

int LoadGraphKernels() {
  cudaError_t error = LoadKernel(BeginKernel);
  if (error == cudaSuccess) error = LoadKernel(GraphProductKernel);
  return error != cudaSuccess ? error : LoadKernel(DeliverKernel);
}

int CaptureProduct(int64_t threads, const GraphCall& call, void* stream) {
  if (const int code = CaptureBegin(call, stream); code != cudaSuccess) return code;
  const int64_t blocks = std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, kMostBlocks);
  GraphProductKernel<<<static_cast<unsigned>(blocks), kThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(call);
  const cudaError_t code = cudaGetLastError();
  return code != cudaSuccess ? code : CaptureDeliver(nullptr, 0, call, stream);
}

int CaptureBegin(const GraphCall& call, void* stream) {
  BeginKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(call);
  return cudaGetLastError();
}

int CaptureDeliver(void* results, uint64_t bytes, const GraphCall& call, void* stream) {
  DeliverKernel<<<kDeliverBlocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint32_t*>(results), bytes / sizeof(uint32_t), call);
  return cudaGetLastError();
}

}  // namespace plumbline
