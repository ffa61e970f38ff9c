// A strided tensor made dense, on the device that it lies on.
#pragma once

#include <cstdint>

#include "base/tensor_view.h"

namespace plumbline {

// Loads the kernel into the current context. 0, or a cudaError_t.
int LoadPackKernel();

// Enqueues a dense C-ordered copy of `from` (rank 1 or 2, any strides) to `to`, device memory or
// host memory the device can write, on `stream`. 0, or the cudaError_t of the launch.
int LaunchPack(const TensorView& from, void* to, void* stream);

// Enqueues a copy of `bytes` bytes; one of the places may be host memory that the device can reach,
// by its address there.
int LaunchMove(const void* from, void* to, uint64_t bytes, void* stream);

}  // namespace plumbline
