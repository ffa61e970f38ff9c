// What the files of libplumbline_cuda.so that fill the device table share: the device behind a
// handle, how errors are told, and the scope in which CUDA is asked.
//
// What is asked of the runtime here is answered by driver_runtime.cc, hidden in the library, whose
// last error is not the trainer's; contexts and streams belong to the driver and are common. A
// thread's current context is changed by push and pop alone: cudaSetDevice would make a context on
// whatever device it puts back.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "kernels/device/driver.h"
#include "kernels/device/table.h"

// The capture's graph is told too; toolkits before 13.0 have another name for that.
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
  CUcontext context;  // the primary one, retained
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

// The runtime's last error is read away: it is this library's own, and of this call.
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

// CUDA's errors of captures: what was asked cannot be done while somebody captures, and can later.
inline bool OfACapture(int code) {
  return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
}

// Of what gets a device, or memory of it, ready: CAPTURING is no fault of the device's.
inline DeviceStatus CheckGot(const char* what, int code, DeviceError* error) {
  const DeviceStatus s = Check(what, code, error);
  return OfACapture(code) ? kDeviceCapturing : s;
}

// For the length of a scope, what the thread calls cannot spoil a capture that goes on elsewhere
// (an event query from another thread would, or the retaining of a context). Begun before anything
// else that touches the driver: the mode is the thread's and needs no context.
class Relaxed {
 public:
  Relaxed() { Set(); }
  ~Relaxed() { End(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

  // Once more, where the driver was not ready for it: not initialised, or without a context. True:
  // it is set only now.
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
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then, the one before
  bool set_ = false;
};

// The same, and the device's context is current.
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
  // False when the context is gone (a device reset): the runtime, called now, would make another.
  bool entered() const { return entered_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Relaxed relaxed_;
  const Driver& driver_;
  bool pushed_ = false;
  bool entered_ = false;
  bool late_ = false;  // the mode needed the context
};

inline DeviceStatus Gone(DeviceError* error) {
  return Fail(error, kDeviceFailed, "the device's context is gone");
}

}  // namespace plumbline
