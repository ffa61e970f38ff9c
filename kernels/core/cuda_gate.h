// What a kernel that may stand in a graph asks first. Only for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include "kernels/core/graph_block.h"
#include "kernels/core/graph_slot.h"

namespace plumbline {

// `section`: GraphCall's, or null: the launch is not a graph's, and goes ahead.
__device__ __forceinline__ bool Closed(const uint64_t* section) {
  return section != nullptr && *section == 0;
}

// A block of one dimension, as one of its threads.
struct DeviceBlock {
  template <typename F>
  __device__ __forceinline__ void Each(F f) const {
    f(static_cast<int>(threadIdx.x));
  }
  __device__ __forceinline__ void Sync() const { __syncthreads(); }
};

// DecideSection, where a kernel asks once.
__device__ __forceinline__ uint64_t OpenSection(const GraphCall& call) {
  __shared__ uint64_t decided;
  return DecideSection(DeviceBlock(), call, &decided);
}

}  // namespace plumbline
