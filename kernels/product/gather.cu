// Gathers the sampled parts of a matrix product on the device: one thread per element.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/product/gather_device.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 256;  // the bus is slower than a few blocks

__global__ void __launch_bounds__(kThreads)
    ProductKernel(const __grid_constant__ ProductPlan plan, unsigned char* out) {
  const int64_t count = ProductThreads(plan);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    GatherProductOne(plan, i, out);
  }
}

}  // namespace

static_assert(sizeof(ProductPlan) <= 4000, "a kernel's arguments are at most 4 KiB");

int LoadProductKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, ProductKernel);
}

int LaunchProduct(const ProductPlan& plan, void* to, void* stream) {
  const int64_t blocks = std::min(kMostBlocks, (ProductThreads(plan) + kThreads - 1) / kThreads);
  ProductKernel<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      plan, static_cast<unsigned char*>(to));
  return cudaGetLastError();
}

}  // namespace plumbline
