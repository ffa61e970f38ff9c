// For code that a device runs and that tests compile for the host too, with emulated lanes. CALLED:
// long, and not copied to where it is used; unrolled loops would multiply it.
#pragma once

#if defined(__CUDACC__)
#define PLUMB_DEVICE __device__ __forceinline__
#define PLUMB_CALLED inline __device__ __noinline__
#define PLUMB_HD_CALLED inline __host__ __device__ __noinline__
#define PLUMB_UNROLL _Pragma("unroll")
#else
#define PLUMB_DEVICE inline
#define PLUMB_CALLED inline
#define PLUMB_HD_CALLED inline
#define PLUMB_UNROLL
#endif
