// libcuda.so.1 as far as kernels/device/cuda_device.cc uses it: two devices, contexts that are
// numbers, a stack of them a thread. The test sets it up through plumbline_stub_driver.
#include "tests/kernels/device/stub_driver.h"

#include <cuda.h>

#include <vector>

namespace {

thread_local std::vector<CUcontext> t_stack;
plumbline::StubDriver g_stub;

CUcontext Primary(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(0x1000 + device));
}

}  // namespace

#define STUB extern "C" __attribute__((visibility("default")))

STUB plumbline::StubDriver* plumbline_stub_driver() { return &g_stub; }

STUB CUresult cuInit(unsigned) { return static_cast<CUresult>(g_stub.init_result); }

STUB CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

STUB CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = device == 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

#undef cuDevicePrimaryCtxRelease
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent

STUB CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ++g_stub.retained;
  *context = Primary(device);
  return CUDA_SUCCESS;
}

STUB CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  --g_stub.retained;
  return CUDA_SUCCESS;
}

STUB CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = t_stack.empty() ? nullptr : t_stack.back();
  return CUDA_SUCCESS;
}

STUB CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (g_stub.context_gone) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  t_stack.push_back(context);
  return CUDA_SUCCESS;
}

STUB CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = t_stack.back();
  t_stack.pop_back();
  return CUDA_SUCCESS;
}

// Streams of device 1 are odd.
STUB CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  *context = Primary(static_cast<int>(reinterpret_cast<uintptr_t>(stream) & 1));
  return CUDA_SUCCESS;
}

STUB CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : "driver error";
  return CUDA_SUCCESS;
}
