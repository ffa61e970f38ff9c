// What the batch launches share: a table of items goes up, one kernel runs, results come down, each
// by a kernel (batch_ends.h). Only for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "kernels/core/batch_ends.h"
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

// Blocks that fill the device a few times over.
inline int BatchBlocks(int64_t work, int processors) {
  return static_cast<int>(std::clamp<int64_t>(work, 1, 8LL * std::max(processors, 1)));
}

// Enqueues: items to the workspace, zeros into the results, run(items, results, stream) where there
// is work, results to the staging memory. The first error ends it: what follows would run on
// memory that is not what it should be.
template <typename Run>
int EnqueueBatch(const BatchShape& batch, void* staging, void* workspace, void* stream, Run run) {
  if (batch.items == 0) return cudaSuccess;
  if (batch.device < 0 || staging == nullptr || workspace == nullptr) return cudaErrorInvalidValue;
  auto* on = static_cast<std::byte*>(workspace);
  if (const int code = StageBatch(batch, staging, workspace, stream); code != cudaSuccess)
    return code;
  if (batch.work > 0) {
    run(on, on + batch.results_at(), static_cast<cudaStream_t>(stream));
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return code;
  }
  return ReturnBatch(batch, workspace, staging, stream);
}

// The same of a batch that a graph holds, in one launch: its items stand in the workspace, its
// results go to the section. run(items, results, stream), also where there is no work.
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
