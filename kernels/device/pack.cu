// Dense tensors go by the copy engine; others through a kernel that writes in the order of the
// target, so that the writes across the bus are whole lines.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/device/pack_device.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 256;  // the bus is slower than a few blocks

template <typename T>
__global__ void PackKernel(const T* from, int64_t rows, int64_t columns, int64_t row_stride,
                           int64_t column_stride, T* to) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * columns;
       i += step) {
    to[i] = from[i / columns * row_stride + i % columns * column_stride];
  }
}

template <typename T>
void Pack(const TensorView& v, void* to, cudaStream_t on) {
  const bool vector = v.rank == 1;
  const int64_t columns = vector ? 1 : v.shape[1];
  const int64_t blocks = std::min(kMostBlocks, (v.elements() + kThreads - 1) / kThreads);
  PackKernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, on>>>(
      static_cast<const T*>(v.data), v.shape[0], columns, v.stride[0], vector ? 0 : v.stride[1],
      static_cast<T*>(to));
}

template <typename T>
cudaError_t Load() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, PackKernel<T>);
}

}  // namespace

int LoadPackKernel() {
  for (auto* load : {Load<uint8_t>, Load<uint16_t>, Load<uint32_t>, Load<uint64_t>}) {
    if (const cudaError_t error = load(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int LaunchPack(const TensorView& from, void* to, void* stream) {
  if (from.elements() == 0) return cudaSuccess;
  auto* on = static_cast<cudaStream_t>(stream);
  const size_t size = DTypeSize(from.dtype);
  if (from.contiguous()) {
    const auto bytes = static_cast<size_t>(from.elements()) * size;
    return cudaMemcpyAsync(to, from.data, bytes, cudaMemcpyDefault, on);
  }
  switch (size) {
    case 8:
      Pack<uint64_t>(from, to, on);
      break;
    case 4:
      Pack<uint32_t>(from, to, on);
      break;
    case 2:
      Pack<uint16_t>(from, to, on);
      break;
    default:
      Pack<uint8_t>(from, to, on);
  }
  return cudaGetLastError();
}

}  // namespace plumbline
