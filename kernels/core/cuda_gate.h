// The first test of a kernel that may be part of a graph. Only for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include "kernels/core/graph_block.h"
#include "kernels/core/graph_slot.h"

namespace plumbline {

// Returns true if the launch must do nothing. `section`: GraphCall's, or null if the launch is not
// part of a graph and always runs.
__device__ __forceinline__ bool Closed(const uint64_t* section) {
  return section != nullptr && *section == 0;
}

// A block of one dimension, from the view of one of its threads.
struct DeviceBlock {
  template <typename F>
  __device__ __forceinline__ void Each(F f) const {
    f(static_cast<int>(threadIdx.x));
  }
  __device__ __forceinline__ void Sync() const { __syncthreads(); }
};

// Calls DecideSection, for kernels that do so once.
__device__ __forceinline__ uint64_t OpenSection(const GraphCall& call) {
  __shared__ uint64_t decided;
  return DecideSection(DeviceBlock(), call, &decided);
}

}  // namespace plumbline
