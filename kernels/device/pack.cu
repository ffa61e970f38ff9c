// Copies between the device and pinned memory by kernels: copies by a copy engine would wait for
// the trainer's copies. Writes are in the order of the target, so that those across the bus are
// whole lines.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/core/copy_element.h"
#include "kernels/device/pack_device.h"

namespace plumbline {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 256;  // the bus is slower than a few blocks

template <typename T>
__global__ void PackKernel(const T* from, int64_t rows, int64_t columns, int64_t row_stride,
                           int64_t column_stride, T* to) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  internal::MatrixWalk walk(columns, first, step);
  for (int64_t i = first; i < rows * columns; i += step, walk.Next())
    to[i] = from[walk.At(row_stride, column_stride)];
}

template <typename T>
__global__ void MoveKernel(const T* from, T* to, int64_t units) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < units; i += step) to[i] = from[i];
}

template <typename T>
int Move(const void* from, void* to, uint64_t bytes, void* stream) {
  const auto units = static_cast<int64_t>(bytes / sizeof(T));
  if (units == 0) return cudaSuccess;
  const int64_t blocks = std::clamp<int64_t>((units + kThreads - 1) / kThreads, 1, kMostBlocks);
  MoveKernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const T*>(from), static_cast<T*>(to), units);
  return cudaGetLastError();
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

template <typename Kernel>
cudaError_t Load(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

template <typename T>
cudaError_t LoadBoth() {
  const cudaError_t error = Load(PackKernel<T>);
  return error != cudaSuccess ? error : Load(MoveKernel<T>);
}

}  // namespace

int LoadPackKernel() {
  for (auto* load :
       {LoadBoth<uint8_t>, LoadBoth<uint16_t>, LoadBoth<uint32_t>, LoadBoth<uint64_t>}) {
    if (const cudaError_t error = load(); error != cudaSuccess) return error;
  }
  return Load(MoveKernel<uint4>);
}

// Copies in the largest units of which the places and the size are multiples.
int LaunchMove(const void* from, void* to, uint64_t bytes, void* stream) {
  const uint64_t all = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | bytes;
  if (all % 16 == 0) return Move<uint4>(from, to, bytes, stream);
  if (all % 8 == 0) return Move<uint64_t>(from, to, bytes, stream);
  if (all % 4 == 0) return Move<uint32_t>(from, to, bytes, stream);
  if (all % 2 == 0) return Move<uint16_t>(from, to, bytes, stream);
  return Move<uint8_t>(from, to, bytes, stream);
}

int LaunchPack(const TensorView& from, void* to, void* stream) {
  if (from.elements() == 0) return cudaSuccess;
  auto* on = static_cast<cudaStream_t>(stream);
  const size_t size = DTypeSize(from.dtype);
  if (from.contiguous())
    return LaunchMove(from.data, to, static_cast<size_t>(from.elements()) * size, stream);
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
