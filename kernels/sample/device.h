// Runs sampled gathers on a device, many in one launch. BatchShape (batch_shape.h) describes
// staging memory and workspace.
#pragma once

#include "kernels/core/batch_shape.h"

namespace plumbline {

// Loads the kernel into the current context: a kernel that is first loaded by its launch may make
// that launch wait for the device. Returns 0 or a cudaError_t.
int LoadGatherKernel();

// Launches gathers; more tensors than one launch's arguments hold (23) need several launches.
int LaunchGathers(const BatchShape& batch, int processors, const BatchMemory& memory, void* stream);

}  // namespace plumbline
