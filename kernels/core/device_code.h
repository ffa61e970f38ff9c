// For code that a device runs and that tests compile for the host with emulated lanes. CALLED marks
// a long function that is not inlined, because unrolled loops would multiply its code. LOOP marks a
// loop that the compiler must not unroll, because its body is long.
#pragma once

#include <cstdint>

#include "base/dtype.h"

#if defined(__CUDACC__)
#define PLUMB_DEVICE __device__ __forceinline__
#define PLUMB_CALLED inline __device__ __noinline__
#define PLUMB_HD_CALLED inline __host__ __device__ __noinline__
#define PLUMB_UNROLL _Pragma("unroll")
#define PLUMB_LOOP _Pragma("unroll 1")
#else
#define PLUMB_DEVICE inline
#define PLUMB_CALLED inline
#define PLUMB_HD_CALLED inline
#define PLUMB_UNROLL
#define PLUMB_LOOP
#endif

namespace plumbline {

PLUMB_HD inline int BitsSet(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __popc(word);
#else
  return __builtin_popcount(word);
#endif
}

}  // namespace plumbline
