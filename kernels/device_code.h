// For code that a device runs and that tests compile for the host too, with emulated lanes.
#pragma once

#if defined(__CUDACC__)
#define PLUMB_DEVICE __device__ __forceinline__
#define PLUMB_UNROLL _Pragma("unroll")
#else
#define PLUMB_DEVICE inline
#define PLUMB_UNROLL
#endif
