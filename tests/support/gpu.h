// Checks whether there is a GPU, for tests and benchmarks that need one. Without a CUDA build there
// is none.
#pragma once

#include <string>

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace plumbline::test {

// Returns an empty text if a device can run them, else the reason.
inline std::string WhyNoGpu() {
#if defined(PLUMBLINE_HAVE_CUDA)
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return "";
  return std::string("no CUDA GPU: ") + cudaGetErrorString(error);
#else
  return "no CUDA GPU can be used: built without the CUDA toolkit";
#endif
}

// The exit status that means "skipped" for CTest and tools/gpu_check.
inline constexpr int kSkipped = 77;

}  // namespace plumbline::test
