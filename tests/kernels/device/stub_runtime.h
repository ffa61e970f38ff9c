// The CUDA runtime and the launchers as the device table's own test has them: each call is counted,
// fails when it is told to, and is a misuse where it is made in the wrong context or capture mode.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <string>

namespace plumbline {

// The runtime, as one thread sees it.
struct Runtime {
  std::map<std::string, int> calls;
  std::map<std::string, cudaError_t> fail;
  cudaError_t last = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  std::function<void()> gone;  // of the user object that was made last
  int misuses = 0;  // calls with another context, or in a mode that could spoil a capture
};
extern Runtime g_runtime;

CUcontext Current();    // of the stub driver, on this thread
CUcontext OfDevice0();  // which the table works in

}  // namespace plumbline
