#include "tests/kernels/device/stub_runtime.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <utility>

#include "kernels/device/cuda_context.h"
#include "kernels/device/graph_device.h"
#include "kernels/device/pack_device.h"
#include "kernels/product/gather_device.h"
#include "kernels/routing/device.h"
#include "kernels/sample/device.h"
#include "kernels/tensor/device.h"
#include "kernels/update/device.h"

namespace plumbline {

Runtime g_runtime;

CUcontext Current() {
  using Get = CUresult (*)(CUcontext*);
  static const auto get = reinterpret_cast<Get>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuCtxGetCurrent"));
  CUcontext context = nullptr;
  get(&context);
  return context;
}

// Sets the driver's mode, because its calls are checked too.
void ExchangeMode(CUstreamCaptureMode* mode) {
  using Exchange = CUresult (*)(CUstreamCaptureMode*);
  static const auto exchange = reinterpret_cast<Exchange>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuThreadExchangeStreamCaptureMode"));
  exchange(mode);
}

CUcontext OfDevice0() { return reinterpret_cast<CUcontext>(uintptr_t{0x1000}); }

int Enter(const char* name) {
  ++g_runtime.calls[name];
  if (Current() != OfDevice0() || g_runtime.mode != cudaStreamCaptureModeRelaxed) {
    ++g_runtime.misuses;
    ADD_FAILURE() << name << " was called outside of the device's scope";
  }
  const auto found = g_runtime.fail.find(name);
  if (found == g_runtime.fail.end()) return cudaSuccess;
  g_runtime.last = found->second;
  return found->second;
}

size_t RoutingWorkspaceBytes(int64_t, int) { return 100; }
int LoadRoutingKernels() { return Enter("LoadRoutingKernels"); }
int LaunchRouting(const RoutingPlan&, int, void*, RoutingRaw*, void*) {
  return Enter("LaunchRouting");
}
int LoadPackKernel() { return Enter("LoadPackKernel"); }
int LaunchPack(const TensorView&, void*, void*) { return Enter("LaunchPack"); }
int LaunchMove(const void*, void*, uint64_t, void*) { return Enter("LaunchMove"); }
int LoadTensorStatsKernel() { return Enter("LoadTensorStatsKernel"); }
int LaunchTensorStats(const BatchShape&, int, const BatchMemory&, const SampledPart&, void*) {
  return Enter("LaunchTensorStats");
}
int LoadUpdateCheckKernel() { return Enter("LoadUpdateCheckKernel"); }
int LaunchUpdateChecks(const BatchShape&, int, const BatchMemory&, const SampledPart&, void*) {
  return Enter("LaunchUpdateChecks");
}
int LoadGatherKernel() { return Enter("LoadGatherKernel"); }
int LaunchGathers(const BatchShape&, int, const BatchMemory&, void*) {
  return Enter("LaunchGathers");
}
int LoadProductKernel() { return Enter("LoadProductKernel"); }
int LaunchProduct(const ProductPlan&, void*, void*) { return Enter("LaunchProduct"); }
int LoadGraphKernels() { return Enter("LoadGraphKernels"); }
int CaptureTensorStats(const BatchShape&, int, void*, const GraphCall&, void*) {
  return Enter("CaptureTensorStats");
}
int CaptureUpdateChecks(const BatchShape&, int, void*, const GraphCall&, void*) {
  return Enter("CaptureUpdateChecks");
}
int CaptureRouting(const RoutingPlan&, int, void*, const GraphCall&, void*) {
  return Enter("CaptureRouting");
}
int CaptureProduct(int64_t, const GraphCall&, void*) { return Enter("CaptureProduct"); }

}  // namespace plumbline

using plumbline::g_runtime;

extern "C" {

cudaError_t Entered(const char* name) { return static_cast<cudaError_t>(plumbline::Enter(name)); }

cudaError_t cudaGetLastError() {
  const cudaError_t last = g_runtime.last;
  g_runtime.last = cudaSuccess;
  return last;
}
const char* cudaGetErrorString(cudaError_t error) {
  static std::string text;
  text = "error " + std::to_string(error);
  return text.c_str();
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  auto of_driver = static_cast<CUstreamCaptureMode>(*mode);
  plumbline::ExchangeMode(&of_driver);
  std::swap(*mode, g_runtime.mode);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return Entered("cudaDeviceGetAttribute");
}
cudaError_t cudaMalloc(void**, size_t) { return Entered("cudaMalloc"); }
cudaError_t cudaFree(void*) { return Entered("cudaFree"); }
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return Entered("cudaHostRegister"); }
cudaError_t cudaHostUnregister(void*) { return Entered("cudaHostUnregister"); }
cudaError_t cudaHostGetDevicePointer(void** alias, void* pages, unsigned) {
  *alias = pages;
  return Entered("cudaHostGetDevicePointer");
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = nullptr;
  return Entered("cudaEventCreateWithFlags");
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return Entered("cudaEventDestroy"); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return Entered("cudaEventRecord"); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0.25f;
  return Entered("cudaEventElapsedTime");
}
cudaError_t cudaEventQuery(cudaEvent_t) { return Entered("cudaEventQuery"); }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = g_runtime.capture;
  return Entered("cudaStreamIsCapturing");
}
cudaError_t PLUMB_CAPTURE_INFO(cudaStream_t, cudaStreamCaptureStatus* status,
                               unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t**,
#if CUDART_VERSION >= 13000
                               const cudaGraphEdgeData**,
#endif
                               size_t*) {
  *status = g_runtime.capture;
  *id = 17;
  if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(uintptr_t{0x9});
  return Entered("cudaStreamGetCaptureInfo");
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* argument, cudaHostFn_t gone,
                                 unsigned count, unsigned flags) {
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaUserObjectNoDestructorSync));
  const cudaError_t code = Entered("cudaUserObjectCreate");
  if (code != cudaSuccess) return code;
  g_runtime.gone = [=] { gone(argument); };
  *object = reinterpret_cast<cudaUserObject_t>(&g_runtime.gone);
  return code;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags) {
  EXPECT_EQ(graph, reinterpret_cast<cudaGraph_t>(uintptr_t{0x9}));
  EXPECT_EQ(object, reinterpret_cast<cudaUserObject_t>(&g_runtime.gone));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaGraphUserObjectMove));
  return Entered("cudaGraphRetainUserObject");
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned) {
  g_runtime.gone();
  return Entered("cudaUserObjectRelease");
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return Entered("cudaStreamCreateWithFlags");
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return Entered("cudaStreamDestroy"); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return Entered("cudaStreamSynchronize"); }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return Entered("cudaMemcpyAsync");
}
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return Entered("cudaMemsetAsync"); }
cudaError_t cudaStreamGetId(cudaStream_t, unsigned long long* id) {
  *id = 42;
  return Entered("cudaStreamGetId");
}

}  // extern "C"
