// A stub of libcuda.so.1, as far as kernels/device/driver.h uses it: two devices, contexts that are
// numbers, a stack of them per thread, device memory on the host, streams that finish at once. The
// test configures it through plumbline_stub_driver.
#include "tests/kernels/device/stub_driver.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

thread_local std::vector<CUcontext> t_stack;
thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
plumbline::StubDriver g_stub;

CUcontext Primary(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(0x1000 + device));
}

// Called by every function except those that set the mode, and the initialisation.
void Touch() {
  if (t_mode != CU_STREAM_CAPTURE_MODE_RELAXED) ++g_stub.unsafe;
}

CUresult Enter(const char* name) {
  ++g_stub.calls[name];
  Touch();
  const auto found = g_stub.fail.find(name);
  return static_cast<CUresult>(found == g_stub.fail.end() ? 0 : found->second);
}

// For calls on a stream: while a capture is active, the legacy stream may not be used in any mode,
// and a captured stream may not be waited for.
CUresult EnterOn(const char* name, CUstream stream, bool waits = false) {
  const bool own = stream == g_stub.own;
  if (g_stub.capturing && (stream == nullptr || stream == CU_STREAM_LEGACY || (waits && !own)))
    ++g_stub.spoiled;
  return Enter(name);
}

void* Host(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

}  // namespace

#define STUB extern "C" __attribute__((visibility("default")))

STUB plumbline::StubDriver* plumbline_stub_driver() { return &g_stub; }

STUB CUresult cuInit(unsigned) {
  g_stub.initialised = true;
  return static_cast<CUresult>(g_stub.init_result);
}

STUB CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  Touch();
  *device = ordinal;
  return ordinal < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

STUB CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  Touch();
  *flags = 0;
  *active = device == 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

#undef cuDevicePrimaryCtxRelease
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent

STUB CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Touch();
  ++g_stub.retained;
  *context = Primary(device);
  return CUDA_SUCCESS;
}

STUB CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  Touch();
  --g_stub.retained;
  return CUDA_SUCCESS;
}

STUB CUresult cuCtxGetCurrent(CUcontext* context) {
  Touch();
  *context = t_stack.empty() ? nullptr : t_stack.back();
  return CUDA_SUCCESS;
}

STUB CUresult cuCtxPushCurrent_v2(CUcontext context) {
  Touch();
  if (g_stub.context_gone) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  t_stack.push_back(context);
  return CUDA_SUCCESS;
}

STUB CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = t_stack.back();
  t_stack.pop_back();
  return CUDA_SUCCESS;
}

// Streams of device 1 are odd; stream 4 belongs to a green context of device 0.
STUB CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  Touch();
  const auto number = reinterpret_cast<uintptr_t>(stream);
  *context = number == 4 ? reinterpret_cast<CUcontext>(uintptr_t{0x2000})
                         : Primary(static_cast<int>(number & 1));
  return CUDA_SUCCESS;
}

STUB CUresult cuCtxGetDevice(CUdevice* device) {
  Touch();
  *device = static_cast<CUdevice>(reinterpret_cast<uintptr_t>(t_stack.back()) & 0xf);
  return CUDA_SUCCESS;
}

STUB CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : "driver error";
  return CUDA_SUCCESS;
}

STUB CUresult cuDriverGetVersion(int* version) {
  *version = g_stub.version;
  return CUDA_SUCCESS;
}

STUB CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 2;
  return Enter("cuDeviceGetAttribute");
}

// ---- memory, events, streams -------------------------------------------------------------------

STUB CUresult cuMemAlloc(CUdeviceptr* memory, size_t bytes) {
  *memory = reinterpret_cast<CUdeviceptr>(std::malloc(bytes));
  return Enter("cuMemAlloc");
}
STUB CUresult cuMemFree(CUdeviceptr memory) {
  std::free(Host(memory));
  return Enter("cuMemFree");
}
STUB CUresult cuMemHostRegister(void*, size_t, unsigned flags) {
  return flags == CU_MEMHOSTREGISTER_DEVICEMAP ? Enter("cuMemHostRegister")
                                               : CUDA_ERROR_INVALID_VALUE;
}
STUB CUresult cuMemHostUnregister(void*) { return Enter("cuMemHostUnregister"); }
STUB CUresult cuMemHostGetDevicePointer(CUdeviceptr* alias, void* pages, unsigned) {
  *alias = reinterpret_cast<CUdeviceptr>(pages);
  return Enter("cuMemHostGetDevicePointer");
}
STUB CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  std::memcpy(Host(to), Host(from), bytes);
  return EnterOn("cuMemcpyAsync", stream);
}
STUB CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes,
                              CUstream stream) {
  std::memset(Host(memory), value, bytes);
  return EnterOn("cuMemsetD8Async", stream);
}
STUB CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = nullptr;
  return Enter("cuEventCreate");
}
STUB CUresult cuEventDestroy(CUevent) { return Enter("cuEventDestroy"); }
STUB CUresult cuEventRecord(CUevent, CUstream stream) { return EnterOn("cuEventRecord", stream); }
#undef cuEventElapsedTime
STUB CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 0.5f;
  return Enter("cuEventElapsedTime");
}
STUB CUresult cuEventQuery(CUevent) { return Enter("cuEventQuery"); }
STUB CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  *stream = reinterpret_cast<CUstream>(g_stub.own);
  return flags == CU_STREAM_NON_BLOCKING ? Enter("cuStreamCreate") : CUDA_ERROR_INVALID_VALUE;
}
STUB CUresult cuStreamDestroy(CUstream) { return Enter("cuStreamDestroy"); }
STUB CUresult cuStreamSynchronize(CUstream stream) {
  return EnterOn("cuStreamSynchronize", stream, true);
}
STUB CUresult cuStreamGetId(CUstream, unsigned long long* id) {
  *id = 42;
  return Enter("cuStreamGetId");
}
STUB CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (!g_stub.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (g_stub.mode_needs_context && t_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  std::swap(*mode, t_mode);
  return CUDA_SUCCESS;
}
STUB CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = g_stub.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return Enter("cuStreamIsCapturing");
}

// As in 12.0: without the edges.
#undef cuStreamGetCaptureInfo
STUB CUresult cuStreamGetCaptureInfo(CUstream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                     CUgraph* graph, const CUgraphNode**, size_t*) {
  *status = g_stub.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  *id = 17;
  *graph = reinterpret_cast<CUgraph>(uintptr_t{0x9});
  return Enter("cuStreamGetCaptureInfo");
}
// The graph is destroyed at once.
STUB CUresult cuUserObjectCreate(CUuserObject* object, void* argument, CUhostFn destroy, unsigned,
                                 unsigned) {
  *object = nullptr;
  const CUresult code = Enter("cuUserObjectCreate");
  if (code == CUDA_SUCCESS) destroy(argument);
  return code;
}
STUB CUresult cuUserObjectRelease(CUuserObject, unsigned) { return Enter("cuUserObjectRelease"); }
STUB CUresult cuGraphRetainUserObject(CUgraph, CUuserObject, unsigned, unsigned) {
  return Enter("cuGraphRetainUserObject");
}

// ---- kernels: the handle of a kernel is its name ---------------------------------------------

STUB CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**,
                                unsigned, CUlibraryOption*, void**, unsigned) {
  *library = static_cast<CUlibrary>(const_cast<void*>(image));
  // A file of code for several architectures begins with this word.
  if (*static_cast<const unsigned*>(image) != 0xba55ed50) return CUDA_ERROR_INVALID_IMAGE;
  return Enter("cuLibraryLoadData");
}
STUB CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  static auto* names = new std::set<std::string>;
  *kernel = reinterpret_cast<CUkernel>(const_cast<char*>(names->insert(name).first->c_str()));
  return Enter("cuLibraryGetKernel");
}
STUB CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return Enter("cuKernelGetFunction");
}
STUB CUresult cuFuncLoad(CUfunction) { return Enter("cuFuncLoad"); }
STUB CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 1;
  return Enter("cuFuncGetAttribute");
}
STUB CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned, unsigned, unsigned block,
                             unsigned, unsigned, unsigned, CUstream stream, void** arguments,
                             void**) {
  g_stub.launches.push_back({reinterpret_cast<const char*>(function), x, block, stream,
                             *static_cast<void**>(arguments[0])});
  return EnterOn("cuLaunchKernel", stream);
}

// ---- function lookup -------------------------------------------------------------------------

STUB CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t,
                                  CUdriverProcAddressQueryResult*) {
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&cuDriverGetVersion), &self);
  void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = nullptr;
  if (version > g_stub.version || g_stub.missing == name) return CUDA_ERROR_NOT_FOUND;
  *function = dlsym(library, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = dlsym(library, name);
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
