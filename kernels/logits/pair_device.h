// Runs the measurement of logits/pair.h on the device of the logits.
#pragma once

#include <cstdint>

#include "kernels/logits/pair.h"

namespace plumbline {

// Options of a launch.
struct LogitLaunch {
  const uint64_t* rows = nullptr;  // device memory, rows to measure; nullptr: 0 ... count - 1
  int64_t count = 0;
  int64_t detailed = 0;  // number of leading rows that are measured in detail: a second read
};

// Loads the kernels into the current context. Returns 0 or a cudaError_t.
int LoadLogitKernels();

// Enqueues the measurement to `out` [launch.count], device memory or host memory that the device
// can write. Tokens are read there too; a token beyond the vocabulary counts as none. Returns 0 or
// the cudaError_t of the launch. Sums are in f32 within a thread (some hundred logits) and in f64
// beyond. Relative differences from the CPU reference: 1e-6 for a normaliser, 1e-3 for a divergence
// of 1e-6 nats.
int LaunchLogits(const LogitPlan& plan, const LogitLaunch& launch, int processors, LogitRow* out,
                 void* stream);

}  // namespace plumbline
