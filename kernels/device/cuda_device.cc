// libplumbline_cuda.so: the device table over CUDA. cuda_graph.cc has the functions for graphs.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "kernels/device/cuda_context.h"
#include "kernels/device/cuda_graph.h"
#include "kernels/device/graph_device.h"
#include "kernels/device/pack_device.h"
#include "kernels/device/table.h"
#include "kernels/product/gather_device.h"
#include "kernels/routing/device.h"
#include "kernels/sample/device.h"
#include "kernels/tensor/device.h"
#include "kernels/update/device.h"

namespace plumbline {
namespace {

// ---- the device --------------------------------------------------------------------------------

DeviceStatus Attribute(const CudaDevice& d, cudaDeviceAttr which, int* value, DeviceError* error) {
  return CheckGot("device attribute", cudaDeviceGetAttribute(value, which, d.ordinal), error);
}

DeviceStatus Retain(CudaDevice* d, DeviceError* error) {
  const Driver& driver = *d->driver;
  DeviceStatus s = Check(driver, "device", driver.device_get(&d->number, d->ordinal), error);
  if (s != kDeviceOk) return s;
  unsigned flags = 0;
  int active = 0;
  s = Check(driver, "device state", driver.primary_state(d->number, &flags, &active), error);
  if (s != kDeviceOk) return s;
  if (active == 0) {
    return Fail(error, kDeviceFailed, "the process does not use device %d (no primary context)",
                d->ordinal);
  }
  const CUresult code = driver.primary_retain(&d->context, d->number);
  s = Check(driver, "context", code, error);
  return OfACapture(code) ? kDeviceCapturing : s;
}

// A driver that is older than the kernels' compiler may refuse their code.
DeviceStatus Loaded(const CudaDevice& d, const char* what, int code, DeviceError* error) {
  const DeviceStatus s = CheckGot(what, code, error);
  if (s != kDeviceFailed || d.driver->version >= CUDART_VERSION) return s;
  const size_t stated = std::strlen(error->text);
  std::snprintf(error->text + stated, sizeof(error->text) - stated,
                " (compiled by CUDA %d.%d; the driver supports CUDA %d.%d)", CUDART_VERSION / 1000,
                CUDART_VERSION % 1000 / 10, d.driver->version / 1000,
                d.driver->version % 1000 / 10);
  return s;
}

DeviceStatus Prepare(CudaDevice* d, DeviceError* error) {
  const Scope scope(*d);
  if (!scope.entered()) return Gone(error);
  DeviceStatus s = Attribute(*d, cudaDevAttrMultiProcessorCount, &d->processors, error);
  if (s == kDeviceOk) s = Loaded(*d, "routing kernels", LoadRoutingKernels(), error);
  if (s == kDeviceOk) s = Loaded(*d, "pack kernels", LoadPackKernel(), error);
  if (s == kDeviceOk) s = Loaded(*d, "product kernel", LoadProductKernel(), error);
  if (s == kDeviceOk) s = Loaded(*d, "tensor kernel", LoadTensorStatsKernel(), error);
  if (s == kDeviceOk) s = Loaded(*d, "update kernel", LoadUpdateCheckKernel(), error);
  if (s == kDeviceOk) s = Loaded(*d, "gather kernel", LoadGatherKernel(), error);
  if (s == kDeviceOk) s = Loaded(*d, "graph kernels", LoadGraphKernels(), error);
  return s;
}

// Another thread may be capturing meanwhile.
DeviceStatus GetReady(CudaDevice* d, DeviceError* error) {
  Relaxed relaxed;
  DeviceStatus s = Check(*d->driver, "no CUDA device", d->driver->init(0), error);
  relaxed.Again();
  if (s == kDeviceOk) s = Retain(d, error);
  if (s != kDeviceOk) return s;
  s = Prepare(d, error);
  if (s != kDeviceOk) d->driver->primary_release(d->number);
  return s;
}

DeviceStatus Open(int32_t ordinal, void** device, DeviceError* error) {
  auto* d = static_cast<CudaDevice*>(std::calloc(1, sizeof(CudaDevice)));
  if (d == nullptr) return Fail(error, kDeviceFailed, "out of memory");
  d->ordinal = ordinal;
  d->driver = OpenDriver(error);
  const DeviceStatus s = d->driver == nullptr ? kDeviceFailed : GetReady(d, error);
  if (s != kDeviceOk) {
    std::free(d);
    return s;
  }
  *device = d;
  return kDeviceOk;
}

void Close(void* device) {
  CudaDevice& d = AsDevice(device);
  {
    const Relaxed relaxed;
    d.driver->primary_release(d.number);
  }
  std::free(&d);
}

// ---- memory and events -------------------------------------------------------------------------

DeviceStatus Allocate(void* device, uint64_t bytes, void** memory, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  const DeviceStatus s = CheckGot("device memory", cudaMalloc(memory, bytes), error);
  if (s != kDeviceOk) return s;
  const DeviceStatus written = WriteMemory(device, *memory, nullptr, bytes, error);
  if (written != kDeviceOk && cudaFree(*memory) != cudaSuccess) cudaGetLastError();
  return written;
}

void FreeMemory(void* device, void* memory) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return;
  if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
}

DeviceStatus Pin(void* device, void* pages, uint64_t bytes, void** alias, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  DeviceStatus s =
      CheckGot("pinned memory", cudaHostRegister(pages, bytes, cudaHostRegisterMapped), error);
  if (s != kDeviceOk) return s;
  s = Check("pinned memory", cudaHostGetDevicePointer(alias, pages, 0), error);
  if (s != kDeviceOk && cudaHostUnregister(pages) != cudaSuccess) cudaGetLastError();
  return s;
}

void Unpin(void* device, void* pages) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return;
  if (cudaHostUnregister(pages) != cudaSuccess) cudaGetLastError();
}

DeviceStatus MakeEvent(void* device, void** event, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  cudaEvent_t made = nullptr;
  const cudaError_t code = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  *event = made;
  return CheckGot("event", code, error);
}

void DestroyEvent(void* device, void* event) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return;
  if (cudaEventDestroy(static_cast<cudaEvent_t>(event)) != cudaSuccess) cudaGetLastError();
}

uint64_t WorkspaceBytes(int64_t tokens, int32_t experts) {
  return RoutingWorkspaceBytes(tokens, experts);
}

// ---- on the trainer's threads ------------------------------------------------------------------

// For example, streams of a green context belong to a separate context on the same device.
bool IsOfDevice(const CudaDevice& d, CUcontext context) {
  CUdevice device = -1;
  if (d.driver->push(context) != CUDA_SUCCESS) return false;
  const bool known = d.driver->context_device(&device) == CUDA_SUCCESS;
  CUcontext popped = nullptr;
  d.driver->pop(&popped);
  return known && device == d.number;
}

DeviceStatus StreamId(void* device, void* stream, uint64_t* id, DeviceError* error) {
  const CudaDevice& d = AsDevice(device);
  const Scope scope(d);
  if (!scope.entered()) return Gone(error);
  auto* on = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t code = cudaStreamIsCapturing(on, &capture);
  // This is the legacy stream, and another stream is being captured: a launch on the legacy stream
  // would invalidate that capture.
  if (code == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return kDeviceCapturing;
  }
  if (Check("cuda_stream", code, error) != kDeviceOk) return kDeviceRefused;
  if (capture != cudaStreamCaptureStatusNone) return kDeviceCapturing;
  CUcontext owner = nullptr;
  if (Check(*d.driver, "cuda_stream", d.driver->stream_context(on, &owner), error) != kDeviceOk) {
    return kDeviceRefused;
  }
  if (owner != d.context) {
    if (IsOfDevice(d, owner)) return kDeviceOtherContext;
    return Fail(error, kDeviceRefused,
                "cuda_stream: expected a stream of device %d, as the tensors", d.ordinal);
  }
  unsigned long long number = 0;
  code = cudaStreamGetId(on, &number);
  *id = number;
  return Check("cuda_stream", code, error) == kDeviceOk ? kDeviceOk : kDeviceRefused;
}

DeviceStatus Measure(void* device, const RoutingPlan* plan, void* workspace,
                     uint64_t workspace_bytes, RoutingRaw* result, void* stream,
                     DeviceError* error) {
  const CudaDevice& d = AsDevice(device);
  if (workspace_bytes < RoutingWorkspaceBytes(plan->tokens, plan->rule.experts)) {
    return Fail(error, kDeviceRefused, "workspace: too small for %lld rows of %d experts",
                static_cast<long long>(plan->tokens), plan->rule.experts);
  }
  const Scope scope(d);
  if (!scope.entered()) return Gone(error);
  return Check("routing kernel", LaunchRouting(*plan, d.processors, workspace, result, stream),
               error);
}

DeviceStatus Copy(void* device, const TensorView* from, void* to, void* stream,
                  DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  return Check("copy", LaunchPack(*from, to, stream), error);
}

DeviceStatus GatherOnDevice(void* device, const ProductPlan* plan, void* to, void* stream,
                            DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  return Check("product kernel", LaunchProduct(*plan, to, stream), error);
}

// Runs one batch: launch(processors); `what`: its name in errors.
template <typename Launch>
DeviceStatus RunBatch(const char* what, void* device, const BatchShape& batch,
                      const BatchMemory& memory, DeviceError* error, Launch launch) {
  const CudaDevice& d = AsDevice(device);
  if (memory.workspace_bytes < BatchWorkspace(batch)) {
    return Fail(error, kDeviceRefused, "workspace: too small for %llu bytes of %s",
                static_cast<unsigned long long>(BatchWorkspace(batch)), what);
  }
  const Scope scope(d);
  if (!scope.entered()) return Gone(error);
  return Check(what, launch(d.processors), error);
}

const SampledPart& Or(const SampledPart* sampled) {
  static const SampledPart none{};
  return sampled != nullptr ? *sampled : none;
}

DeviceStatus MeasureTensors(void* device, const BatchShape* batch, const BatchMemory* memory,
                            const SampledPart* sampled, void* stream, DeviceError* error) {
  return RunBatch("tensor kernel", device, *batch, *memory, error, [&](int processors) {
    return LaunchTensorStats(*batch, processors, *memory, Or(sampled), stream);
  });
}

DeviceStatus CheckUpdates(void* device, const BatchShape* batch, const BatchMemory* memory,
                          const SampledPart* sampled, void* stream, DeviceError* error) {
  return RunBatch("update kernel", device, *batch, *memory, error, [&](int processors) {
    return LaunchUpdateChecks(*batch, processors, *memory, Or(sampled), stream);
  });
}

DeviceStatus Gather(void* device, const BatchShape* batch, const BatchMemory* memory,
                    const SampledPart*, void* stream, DeviceError* error) {
  const CudaDevice& d = AsDevice(device);
  const Scope scope(d);
  if (!scope.entered()) return Gone(error);
  return Check("gather kernel", LaunchGathers(*batch, d.processors, *memory, stream), error);
}

DeviceStatus RecordEvent(void* device, void* event, void* stream, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  return Check("event",
               cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
               error);
}

DeviceStatus EventPassed(void* device, void* event, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  const cudaError_t code = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (code != cudaErrorNotReady) return Check("before the event", code, error);
  cudaGetLastError();
  return kDeviceNotYet;
}

// ---- timers ------------------------------------------------------------------------------------

struct Timer {
  cudaEvent_t mark[2];
};

DeviceStatus MakeTimer(void* device, void** timer, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  auto* made = static_cast<Timer*>(std::calloc(1, sizeof(Timer)));
  if (made == nullptr) return Fail(error, kDeviceFailed, "out of memory");
  for (cudaEvent_t& mark : made->mark) {
    const DeviceStatus s =
        CheckGot("timer", cudaEventCreateWithFlags(&mark, cudaEventDefault), error);
    if (s == kDeviceOk) continue;
    if (made->mark[0] != nullptr && cudaEventDestroy(made->mark[0]) != cudaSuccess)
      cudaGetLastError();
    std::free(made);
    return s;
  }
  *timer = made;
  return kDeviceOk;
}

void DestroyTimer(void* device, void* timer) {
  auto* made = static_cast<Timer*>(timer);
  for (cudaEvent_t mark : made->mark) DestroyEvent(device, mark);
  std::free(made);
}

DeviceStatus MarkTimer(void* device, void* timer, int32_t end, void* stream, DeviceError* error) {
  return RecordEvent(device, static_cast<Timer*>(timer)->mark[end], stream, error);
}

DeviceStatus ReadTimer(void* device, void* timer, uint64_t* ns, DeviceError* error) {
  const Scope scope(AsDevice(device));
  if (!scope.entered()) return Gone(error);
  const auto* made = static_cast<const Timer*>(timer);
  float milliseconds = 0;
  const DeviceStatus s =
      Check("timer", cudaEventElapsedTime(&milliseconds, made->mark[0], made->mark[1]), error);
  *ns = static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6);
  return s;
}

}  // namespace
}  // namespace plumbline

extern "C" const plumbline::DeviceTable plumbline_device_table = {
    sizeof(plumbline::DeviceTable),
    plumbline::kDeviceTableVersion,
    plumbline::kDeviceSizes,
    plumbline::Open,
    plumbline::Close,
    plumbline::Allocate,
    plumbline::FreeMemory,
    plumbline::Pin,
    plumbline::Unpin,
    plumbline::MakeEvent,
    plumbline::DestroyEvent,
    plumbline::WorkspaceBytes,
    plumbline::StreamId,
    plumbline::Measure,
    plumbline::Copy,
    plumbline::GatherOnDevice,
    plumbline::MeasureTensors,
    plumbline::CheckUpdates,
    plumbline::Gather,
    plumbline::RecordEvent,
    plumbline::EventPassed,
    plumbline::MakeTimer,
    plumbline::DestroyTimer,
    plumbline::MarkTimer,
    plumbline::ReadTimer,
    plumbline::WriteMemory,
    plumbline::SetSlots,
    plumbline::CaptureId,
    plumbline::WatchGraph,
    plumbline::CaptureTensor,
    plumbline::CaptureUpdate,
    plumbline::CaptureRouter,
    plumbline::CaptureProductOf,
};
