// Whether a program that needs a GPU can run. Without a CUDA build it says so.
#pragma once

#include <string>

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cuda_runtime.h>
#endif

namespace plumbline {

// Empty where a device can be used, else why not.
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

// What CTest and tools/gpu_check take for "skipped".
inline constexpr int kSkipped = 77;

}  // namespace plumbline
