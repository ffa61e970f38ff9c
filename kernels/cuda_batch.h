// What the batch launches share: a table of items goes up, one kernel runs, results come down. Only
// for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "kernels/device_batch.h"

namespace plumbline {

using DeviceWord = unsigned long long;

__device__ __forceinline__ void AtomicAdd64(uint64_t* p, uint64_t v) {
  atomicAdd(reinterpret_cast<DeviceWord*>(p), static_cast<DeviceWord>(v));
}
__device__ __forceinline__ void AtomicAdd64(int64_t* p, int64_t v) {
  atomicAdd(reinterpret_cast<DeviceWord*>(p), static_cast<DeviceWord>(v));
}
__device__ __forceinline__ void AtomicMax64(uint64_t* p, uint64_t v) {
  atomicMax(reinterpret_cast<DeviceWord*>(p), static_cast<DeviceWord>(v));
}

// The last item whose first_span is not beyond `span` and that has spans.
template <typename Item>
__device__ __forceinline__ int ItemOfSpan(const Item* items, int count, int64_t span) {
  int low = 0;
  int high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (items[middle].first_span <= span) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

template <typename Kernel>
cudaError_t LoadKernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

// Blocks that fill the device a few times over.
inline int BatchBlocks(int64_t work, int processors) {
  return static_cast<int>(std::clamp<int64_t>(work, 1, 8LL * std::max(processors, 1)));
}

// Enqueues: items to the workspace, zeros into the results, run(items, results), results to the
// staging memory. put(staging) writes the items.
template <typename Batch, typename Put, typename Run>
int EnqueueBatch(const Batch& batch, void* staging, void* workspace, void* stream, Put put,
                 Run run) {
  if (batch.items().empty()) return cudaSuccess;
  if (batch.device() < 0 || staging == nullptr || workspace == nullptr) {
    return cudaErrorInvalidValue;
  }
  const BatchMemory memory = MemoryOf(batch);
  auto* up = static_cast<std::byte*>(staging);
  auto* on = static_cast<std::byte*>(workspace);
  auto* to = static_cast<cudaStream_t>(stream);
  put(up);
  cudaMemcpyAsync(on, up, memory.item_bytes, cudaMemcpyHostToDevice, to);
  cudaMemsetAsync(on + memory.results(), 0, memory.result_bytes, to);
  run(on, on + memory.results(), to);
  cudaMemcpyAsync(up + memory.results(), on + memory.results(), memory.result_bytes,
                  cudaMemcpyDeviceToHost, to);
  return cudaGetLastError();
}

// Adds the digits of `sums` sums, each kept by `copies` copies one after the other, to the sums in
// global memory. A part is kept below 2^33, so that 2^29 flushes are no overflow.
__device__ __forceinline__ void FlushDigits(const WideDigits* shared, int sums, int copies,
                                            WideDigits* to) {
  for (int i = threadIdx.x; i < sums * WideDigits::kCount; i += blockDim.x) {
    const int sum = i / WideDigits::kCount;
    const int digit = i % WideDigits::kCount;
    int64_t value = 0;
    for (int copy = 0; copy < copies; ++copy) value += shared[copy * sums + sum].digit[digit];
    if (value == 0) continue;
    const bool last = digit + 1 == WideDigits::kCount;
    AtomicAdd64(&to[sum].digit[digit], last ? value : value & 0xffffffff);
    if (!last && value >> 32 != 0) AtomicAdd64(&to[sum].digit[digit + 1], value >> 32);
  }
}

}  // namespace plumbline
