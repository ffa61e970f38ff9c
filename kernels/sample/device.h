// Sampled gathers on a device, many in one launch: what BatchShape says (batch_shape.h) of staging
// memory and workspace holds.
#pragma once

#include "kernels/core/batch_shape.h"

namespace plumbline {

// Loads the kernel into the current context: one that is first loaded by its launch may make that
// launch wait for the device. 0, or a cudaError_t.
int LoadGatherKernel();

// Of more tensors than one launch's arguments have room for (23): several launches.
int LaunchGathers(const BatchShape& batch, int processors, const BatchMemory& memory, void* stream);

}  // namespace plumbline
