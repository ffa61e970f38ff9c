#include "kernels/device/cuda_graph.h"

#include "kernels/device/cuda_context.h"
#include "kernels/device/graph_device.h"
#include "kernels/device/pack_device.h"
#include "kernels/routing/device.h"
#include "kernels/tensor/device.h"
#include "kernels/update/device.h"

namespace plumbline {
namespace {

// Requires a capture: a launch elsewhere would run once instead of at each replay, and one on the
// legacy stream while another stream is captured would invalidate that capture.
DeviceStatus RequireCapture(void* stream, uint64_t* id, cudaGraph_t* graph, DeviceError* error) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  const cudaError_t code =
      PLUMB_CAPTURE_INFO(static_cast<cudaStream_t>(stream), &capture, &number, graph);
  *id = number;
  if (code == cudaSuccess && capture == cudaStreamCaptureStatusActive) return kDeviceOk;
  if (code != cudaSuccess) cudaGetLastError();
  return Fail(error, kDeviceRefused, "cuda_stream: expected a stream that is being captured");
}

// If a launch fails, the end of the trainer's capture reports it.
template <typename Launch>
DeviceStatus CaptureOn(void* device, const char* what, void* stream, DeviceError* error,
                       Launch launch) {
  const CudaDevice& d = AsDevice(device);
  const Scope scope(d);
  if (!scope.entered()) return Gone(error);
  uint64_t id = 0;
  cudaGraph_t graph = nullptr;
  const DeviceStatus s = RequireCapture(stream, &id, &graph, error);
  return s != kDeviceOk ? s : Check(what, launch(d.processors), error);
}

cudaError_t WriteAndWait(void* to, const void* from, uint64_t bytes) {
  // A separate stream that waits for no other stream, because the legacy stream may not be used
  // during a capture.
  cudaStream_t own = nullptr;
  cudaError_t code = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
  if (code != cudaSuccess) return code;
  code = from == nullptr ? cudaMemsetAsync(to, 0, bytes, own)
                         : cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, own);
  if (code == cudaSuccess) code = cudaStreamSynchronize(own);
  const cudaError_t destroyed = cudaStreamDestroy(own);
  return code != cudaSuccess ? code : destroyed;
}

}  // namespace

DeviceStatus WriteMemory(void* device, void* to, const void* from, uint64_t bytes,
                         DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  return CheckGot("device memory", WriteAndWait(to, from, bytes), error);
}

DeviceStatus SetSlots(void* device, GraphSlot* slots, const GraphSlot* from, uint32_t count,
                      void* stream, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  const size_t bytes = count * sizeof(GraphSlot);
  auto* on = static_cast<cudaStream_t>(stream);
  const int code = from == nullptr ? static_cast<int>(cudaMemsetAsync(slots, 0, bytes, on))
                                   : LaunchMove(from, slots, bytes, stream);
  return Check("graph slots", code, error);
}

DeviceStatus CaptureId(void* device, void* stream, uint64_t* id, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  cudaGraph_t graph = nullptr;
  return RequireCapture(stream, id, &graph, error);
}

// A user object of the graph only. Copies and instances share the object. A destroyed instance that
// still runs keeps its reference until it is done.
DeviceStatus WatchGraph(void* device, void* stream, void (*gone)(void*), void* argument,
                        DeviceError* error) {
  const Scope scope(AsDevice(device));
  uint64_t id = 0;
  cudaGraph_t graph = nullptr;
  cudaUserObject_t object = nullptr;
  DeviceStatus s = scope.entered() ? RequireCapture(stream, &id, &graph, error) : Gone(error);
  if (s == kDeviceOk) {
    s = Check("graph's end",
              cudaUserObjectCreate(&object, argument, gone, 1, cudaUserObjectNoDestructorSync),
              error);
  }
  if (s != kDeviceOk) {
    gone(argument);
    return s;
  }
  const cudaError_t code = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  s = Check("graph's end", code, error);
  // If this was the only reference, the release calls `gone`.
  if (s != kDeviceOk && cudaUserObjectRelease(object, 1) != cudaSuccess) cudaGetLastError();
  return s;
}

DeviceStatus CaptureTensor(void* device, const BatchShape* batch, void* workspace,
                           const GraphCall* call, void* stream, DeviceError* error) {
  return CaptureOn(device, "tensor kernel", stream, error, [&](int processors) {
    return CaptureTensorStats(*batch, processors, workspace, *call, stream);
  });
}

DeviceStatus CaptureUpdate(void* device, const BatchShape* batch, void* workspace,
                           const GraphCall* call, void* stream, DeviceError* error) {
  return CaptureOn(device, "update kernel", stream, error, [&](int processors) {
    return CaptureUpdateChecks(*batch, processors, workspace, *call, stream);
  });
}

DeviceStatus CaptureRouter(void* device, const RoutingPlan* plan, void* workspace,
                           uint64_t workspace_bytes, const GraphCall* call, void* stream,
                           DeviceError* error) {
  if (workspace_bytes < RoutingWorkspaceBytes(plan->tokens, plan->rule.experts)) {
    return Fail(error, kDeviceRefused, "workspace: too small for %lld rows of %d experts",
                static_cast<long long>(plan->tokens), plan->rule.experts);
  }
  return CaptureOn(device, "routing kernels", stream, error, [&](int processors) {
    return CaptureRouting(*plan, processors, workspace, *call, stream);
  });
}

DeviceStatus CaptureProductOf(void* device, int64_t threads, const GraphCall* call, void* stream,
                              DeviceError* error) {
  return CaptureOn(device, "product kernel", stream, error,
                   [&](int) { return CaptureProduct(threads, *call, stream); });
}

}  // namespace plumbline
