// The CUDA driver, opened, not linked: the functions of libcuda.so.1 that are used, and their
// minimum versions.
//
// cuGetProcAddress returns the functions as of CUDA 12.0, for any toolkit of this build. Each
// driver from 12.0 on has all of them and returns the same ones. The library does not use the
// toolkit's static runtime, which would need a driver as new as the toolkit (driver_runtime.cc has
// the parts that compiled kernels need).
#pragma once

#include <cuda.h>

#include "kernels/device/table.h"

namespace plumbline {

// CUDA versions, as the driver counts them.
inline constexpr int kNeededDriver = 12000;

// The driver's functions by our name and theirs. If a header newer than 12.0 gives another
// signature under the name, Driver declares ours.
#define PLUMB_DRIVER_FUNCTIONS(X)                    \
  X(init, cuInit)                                    \
  X(device_get, cuDeviceGet)                         \
  X(device_attribute, cuDeviceGetAttribute)          \
  X(primary_state, cuDevicePrimaryCtxGetState)       \
  X(primary_retain, cuDevicePrimaryCtxRetain)        \
  X(primary_release, cuDevicePrimaryCtxRelease)      \
  X(current, cuCtxGetCurrent)                        \
  X(push, cuCtxPushCurrent)                          \
  X(pop, cuCtxPopCurrent)                            \
  X(context_device, cuCtxGetDevice)                  \
  X(error_text, cuGetErrorString)                    \
  X(allocate, cuMemAlloc)                            \
  X(free, cuMemFree)                                 \
  X(host_register, cuMemHostRegister)                \
  X(host_unregister, cuMemHostUnregister)            \
  X(host_alias, cuMemHostGetDevicePointer)           \
  X(copy, cuMemcpyAsync)                             \
  X(set_bytes, cuMemsetD8Async)                      \
  X(event_create, cuEventCreate)                     \
  X(event_destroy, cuEventDestroy)                   \
  X(event_record, cuEventRecord)                     \
  X(event_query, cuEventQuery)                       \
  X(event_elapsed, cuEventElapsedTime)               \
  X(stream_create, cuStreamCreate)                   \
  X(stream_destroy, cuStreamDestroy)                 \
  X(stream_synchronize, cuStreamSynchronize)         \
  X(stream_capturing, cuStreamIsCapturing)           \
  X(stream_id, cuStreamGetId)                        \
  X(stream_context, cuStreamGetCtx)                  \
  X(capture_mode, cuThreadExchangeStreamCaptureMode) \
  X(user_object, cuUserObjectCreate)                 \
  X(user_object_release, cuUserObjectRelease)        \
  X(graph_retain, cuGraphRetainUserObject)           \
  X(library_load, cuLibraryLoadData)                 \
  X(library_kernel, cuLibraryGetKernel)              \
  X(kernel_function, cuKernelGetFunction)            \
  X(function_attribute, cuFuncGetAttribute)          \
  X(launch, cuLaunchKernel)

struct Driver {
#define PLUMB_DRIVER_FIELD(field, name) decltype(&::name) field;
  PLUMB_DRIVER_FUNCTIONS(PLUMB_DRIVER_FIELD)
#undef PLUMB_DRIVER_FIELD
  CUresult (*capture_info)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                           const CUgraphNode**, size_t*);
  CUresult (*function_load)(CUfunction);  // from 12.4 on; else null
  int version;                            // version that it supports
};

// Opens the driver, once per process. Returns null and sets *error to a text with the missing part,
// or with the found and the needed version. Calls only its version function. Thread-safe.
const Driver* OpenDriver(DeviceError* error);
// Returns the driver after OpenDriver succeeded.
const Driver& OpenedDriver();

}  // namespace plumbline
