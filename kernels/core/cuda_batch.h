// Shared code of batch launches: items are the launch's arguments, and its last block writes the
// results to pinned memory. Only for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "kernels/core/batch_launches.h"
#include "kernels/core/batch_shape.h"
#include "kernels/core/graph_slot.h"
#include "kernels/core/wide_sum.h"

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

template <typename Kernel>
cudaError_t LoadKernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

// Returns a number of blocks that fills the device a few times over.
inline int BatchBlocks(int64_t work, int processors) {
  return static_cast<int>(std::clamp<int64_t>(work, 1, 8LL * std::max(processors, 1)));
}

// Enqueues a batch in as few launches as its items allow. Calls run(arguments, first_span, result)
// for each, as ForEachLaunch does.
template <typename Item, int kMost, typename Run>
int EnqueueBatch(const BatchShape& batch, const BatchMemory& memory, Run run) {
  if (batch.items == 0) return cudaSuccess;
  if (batch.device < 0 || memory.items == nullptr || memory.staging == nullptr) {
    return cudaErrorInvalidValue;
  }
  const auto launch = [&](const ItemArguments<Item, kMost>& arguments, int64_t span,
                          uint64_t result) {
    run(arguments, span, result);
    return static_cast<int>(cudaGetLastError());
  };
  return ForEachLaunch<Item, kMost>(batch, memory.items, launch);
}

// Enqueues a batch into a graph, in one launch: its items are in the workspace, its results go to
// the section. Calls run(items, results, stream), even if there is no work.
template <typename Run>
int CaptureBatch(const BatchShape& batch, void* workspace, const GraphCall& call, void* stream,
                 Run run) {
  if (batch.device < 0 || batch.items == 0 || workspace == nullptr || call.slot == nullptr) {
    return cudaErrorInvalidValue;
  }
  auto* on = static_cast<std::byte*>(workspace);
  run(on, on + batch.results_at(), static_cast<cudaStream_t>(stream));
  return cudaGetLastError();
}

// Adds the digits of `sums` sums, each with `copies` consecutive copies, to the sums in global
// memory. A part stays below 2^33, so that 2^29 flushes do not overflow.
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
