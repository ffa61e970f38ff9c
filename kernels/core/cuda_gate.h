// What a kernel that may stand in a graph asks first. Only for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include "kernels/core/graph_slot.h"

namespace plumbline {

// `section`: GraphCall's, or null: the launch is not a graph's, and goes ahead.
__device__ __forceinline__ bool Closed(const uint64_t* section) {
  return section != nullptr && *section == 0;
}

}  // namespace plumbline
