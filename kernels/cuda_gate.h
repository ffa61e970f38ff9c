// What a kernel that may stand in a graph asks first. Only for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include "kernels/graph_slot.h"

namespace plumbline {

// No slot: the launch is not a graph's, and goes ahead.
__device__ __forceinline__ bool Closed(const GraphSlot* slot) {
  if (slot == nullptr) return false;
  if (slot->section == 0) return true;
  if (blockIdx.x == 0 && threadIdx.x == 0) WorkOf(*slot)->begun = 1;
  return false;
}

}  // namespace plumbline
