// Runs the gather of product/gather.h on the device of the tensors.
#pragma once

#include "kernels/product/gather.h"

namespace plumbline {

// Loads the kernel into the current context. Returns 0 or a cudaError_t.
int LoadProductKernel();

// Enqueues the gather to `to`: plan.bytes bytes of device memory, or of host memory that the device
// can write, aligned to 16. Returns 0 or the cudaError_t of the launch.
int LaunchProduct(const ProductPlan& plan, void* to, void* stream);

}  // namespace plumbline
