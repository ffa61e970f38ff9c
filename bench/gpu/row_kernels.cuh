// Kernels with one operation each, like a tensor library without fusion: the peer of kernels that
// compute several figures at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace plumbline::gpu {

inline constexpr int kRowThreads = 512;

struct Add {
  static constexpr float kStart = 0;
  __device__ static float Join(float a, float b) { return a + b; }
};
struct Larger {
  static constexpr float kStart = -3.402823466e38f;
  __device__ static float Join(float a, float b) { return fmaxf(a, b); }
};

// Stores the joined f(element) of each row in out[row]; one block per row.
template <typename Join, typename F>
__global__ void __launch_bounds__(kRowThreads) RowReduce(int64_t width, float* out, F f) {
  __shared__ float parts[kRowThreads / 32];
  const int64_t first = blockIdx.x * width;
  float value = Join::kStart;
  for (int64_t i = threadIdx.x; i < width; i += kRowThreads) {
    value = Join::Join(value, f(first + i, blockIdx.x));
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    value = Join::Join(value, __shfl_xor_sync(0xffffffffu, value, mask));
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kRowThreads / 32; ++i) value = Join::Join(value, parts[i]);
  out[blockIdx.x] = value;
}

// Calls f(element, row) for each of rows x width.
template <typename F>
__global__ void Map(int64_t width, int64_t n, F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step) {
    f(i, i / width);
  }
}

// Launches both on `stream`, for `rows` rows of `width`.
struct Rows {
  int64_t rows, width;
  cudaStream_t stream;

  template <typename Join, typename F>
  void Reduce(float* out, F f) const {
    RowReduce<Join><<<static_cast<unsigned>(rows), kRowThreads, 0, stream>>>(width, out, f);
  }
  template <typename F>
  void Each(F f) const {
    const int64_t n = rows * width;
    Map<<<static_cast<unsigned>((n + 1023) / 1024), 256, 0, stream>>>(width, n, f);
  }
};

}  // namespace plumbline::gpu
