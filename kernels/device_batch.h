// Tensor statistics, update checks and sampled gathers of many device tensors, each kind in one
// launch.
//
// A batch is planned on the host (TensorBatch, UpdateBatch, GatherBatch), put into the staging
// memory (batch.Put) and launched as its shape, with memory of the caller's:
//   staging    host memory, pinned (else the copies wait for the stream): the items go up from it,
//              results come back to it
//   workspace  device memory, 256-byte aligned
// both of shape.bytes(). They, and the tensors, must live until the stream has passed the launch;
// a launch must not be enqueued with the staging memory of one that is under way. Nothing is
// allocated, nothing waits. `stream` is a cudaStream_t of the batch's device, which must be
// current.
//
// When the stream has passed, batch.Finish(staging + shape.results_at()) gives what the host twins
// give, in every bit. Launches return 0 or a cudaError_t; cudaErrorInvalidValue for a batch that is
// not on a device or for missing memory. Thread-safe.
#pragma once

#include "kernels/batch_shape.h"

namespace plumbline {

// Loads the kernels into the current context: one that is first loaded by its launch may make that
// launch wait for the device. 0, or a cudaError_t.
int LoadTensorStatsKernel();
int LoadUpdateCheckKernel();
int LoadGatherKernel();

int LaunchTensorStats(const BatchShape& batch, int processors, void* staging, void* workspace,
                      void* stream);
int LaunchUpdateChecks(const BatchShape& batch, int processors, void* staging, void* workspace,
                       void* stream);
int LaunchGathers(const BatchShape& batch, int processors, void* staging, void* workspace,
                  void* stream);

}  // namespace plumbline
