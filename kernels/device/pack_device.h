// Copies a strided tensor into dense memory on its device.
#pragma once

#include <cstdint>

#include "base/tensor_view.h"

namespace plumbline {

// Loads the kernel into the current context. Returns 0 or a cudaError_t.
int LoadPackKernel();

// Enqueues a dense C-ordered copy of `from` (rank 1 or 2, any strides) to `to` on `stream`. `to` is
// device memory or host memory that the device can write. Returns 0 or the cudaError_t of the
// launch.
int LaunchPack(const TensorView& from, void* to, void* stream);

// Enqueues a copy of `bytes` bytes. One of the places may be host memory that the device can reach,
// by its address there.
int LaunchMove(const void* from, void* to, uint64_t bytes, void* stream);

}  // namespace plumbline
