// The CUDA runtime and the launchers for the device table's own test: each call is counted, fails
// on demand, and is a misuse if it is made in the wrong context or capture mode.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <string>

namespace plumbline {

// The runtime of one thread.
struct Runtime {
  std::map<std::string, int> calls;
  std::map<std::string, cudaError_t> fail;
  cudaError_t last = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  std::function<void()> gone;  // of the newest user object
  int misuses = 0;  // calls with another context, or in a mode that could invalidate a capture
};
extern Runtime g_runtime;

CUcontext Current();    // of the stub driver, on this thread
CUcontext OfDevice0();  // the table's context

}  // namespace plumbline
