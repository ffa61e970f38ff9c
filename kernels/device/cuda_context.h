// Shared code of the files of libplumbline_cuda.so that fill the device table: the device of a
// handle, error reports, and the scope of CUDA calls.
//
// driver_runtime.cc answers the runtime calls here. It is hidden in the library, so its last error
// is not the trainer's. Contexts and streams belong to the driver and are shared with the trainer.
// A thread's current context is changed by push and pop only: cudaSetDevice would create a context
// on the device that it restores.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "kernels/device/driver.h"
#include "kernels/device/table.h"

// Also returns the capture's graph; toolkits before 13.0 have another name for this function.
#if CUDART_VERSION >= 13000
#define PLUMB_CAPTURE_INFO cudaStreamGetCaptureInfo
#else
#define PLUMB_CAPTURE_INFO cudaStreamGetCaptureInfo_v2
#endif

namespace plumbline {

struct CudaDevice {
  const Driver* driver;
  int ordinal;
  CUdevice number;
  CUcontext context;  // the primary context, retained
  int processors;
};

inline CudaDevice& AsDevice(void* device) { return *static_cast<CudaDevice*>(device); }

__attribute__((format(printf, 3, 4))) inline DeviceStatus Fail(DeviceError* error,
                                                               DeviceStatus status,
                                                               const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->text, sizeof(error->text), format, arguments);
  va_end(arguments);
  return status;
}

// Reads the runtime's last error, which belongs to this library and this call.
inline DeviceStatus Check(const char* what, int code, DeviceError* error) {
  if (code == cudaSuccess) return kDeviceOk;
  cudaGetLastError();
  return Fail(error, kDeviceFailed, "%s: %s", what,
              cudaGetErrorString(static_cast<cudaError_t>(code)));
}

inline DeviceStatus Check(const Driver& driver, const char* what, CUresult code,
                          DeviceError* error) {
  if (code == CUDA_SUCCESS) return kDeviceOk;
  const char* text = nullptr;
  driver.error_text(code, &text);
  return Fail(error, kDeviceFailed, "%s: %s", what, text != nullptr ? text : "unknown error");
}

// Returns true for CUDA's errors of captures: the call is impossible during a capture, and possible
// later.
inline bool OfACapture(int code) {
  return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
}

// Checks a call that prepares a device or its memory. CAPTURING is not a fault of the device.
inline DeviceStatus CheckGot(const char* what, int code, DeviceError* error) {
  const DeviceStatus s = Check(what, code, error);
  return OfACapture(code) ? kDeviceCapturing : s;
}

// In this scope, calls of this thread cannot invalidate a capture of another thread. (Otherwise an
// event query, or retaining a context, would.) The scope begins before all other calls of the
// driver, because the mode belongs to the thread and needs no context.
class Relaxed {
 public:
  Relaxed() { Set(); }
  ~Relaxed() { End(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

  // Tries again if the driver was not ready: not initialised, or without a context. Returns true if
  // the mode is set only now.
  bool Again() {
    if (set_) return false;
    Set();
    return set_;
  }
  void End() {
    if (std::exchange(set_, false)) cudaThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  void Set() {
    set_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
    if (!set_) cudaGetLastError();
  }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // the former mode, if set
  bool set_ = false;
};

// Does the same and makes the device's context current.
class Scope {
 public:
  explicit Scope(const CudaDevice& device) : driver_(*device.driver) {
    CUcontext before = nullptr;
    driver_.current(&before);
    pushed_ = before != device.context && driver_.push(device.context) == CUDA_SUCCESS;
    entered_ = pushed_ || before == device.context;
    late_ = entered_ && relaxed_.Again();
  }
  ~Scope() {
    if (late_) relaxed_.End();
    CUcontext ours = nullptr;
    if (pushed_) driver_.pop(&ours);
  }
  // Returns false if the context is gone (a device reset): a call of the runtime would then create
  // another context.
  bool entered() const { return entered_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Relaxed relaxed_;
  const Driver& driver_;
  bool pushed_ = false;
  bool entered_ = false;
  bool late_ = false;  // the mode could only be set with a context
};

inline DeviceStatus Gone(DeviceError* error) {
  return Fail(error, kDeviceFailed, "the device's context is gone");
}

}  // namespace plumbline
