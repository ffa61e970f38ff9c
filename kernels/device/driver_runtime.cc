// The functions of a CUDA runtime that the device library needs, over the driver. They replace the
// toolkit's static runtime, which would be a second runtime in the process, installs an exit
// handler, and refuses a driver that is older than itself.
//
// Two parts: the functions that nvcc's generated code calls for kernels and launches (its own entry
// points, which no manual describes; code of a toolkit that calls others does not link), and the
// few documented functions that this folder and the kernels use. They are called only with the
// device's context current and after OpenDriver, except the registrations, which run when the
// library is loaded and only record their arguments.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fatbinary_section.h>

#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "kernels/device/cuda_context.h"
#include "kernels/device/driver.h"

namespace plumbline {
namespace {

struct Binary {
  const void* image;  // of all architectures
  CUlibrary library = nullptr;
};

struct Kernel {
  Binary* of;
  std::string name;
  CUkernel kernel = nullptr;
};

struct Registry {
  Mutex mutex;
  std::deque<Binary> binaries PLUMB_GUARDED_BY(mutex);  // addresses must not change
  std::unordered_map<const void*, Kernel> kernels
      PLUMB_GUARDED_BY(mutex);  // by the host's function
};

Registry& All() {
  static auto* all = new Registry;
  return *all;
}

struct Shape {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};

thread_local Shape t_shape;
thread_local cudaError_t t_last = cudaSuccess;

// The two lists of codes have the same numbers.
cudaError_t Stated(CUresult code) {
  if (code != CUDA_SUCCESS) t_last = static_cast<cudaError_t>(code);
  return static_cast<cudaError_t>(code);
}

const Driver& D() { return OpenedDriver(); }

// Returns a kernel. Its binary is loaded with the first of its kernels, once for all devices.
CUresult KernelOf(const void* host, CUkernel* kernel) {
  Registry& all = All();
  const MutexLock lock(all.mutex);
  const auto found = all.kernels.find(host);
  if (found == all.kernels.end()) return CUDA_ERROR_NOT_FOUND;
  Kernel& k = found->second;
  CUresult code = CUDA_SUCCESS;
  if (k.of->library == nullptr) {
    code = D().library_load(&k.of->library, k.of->image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  if (code == CUDA_SUCCESS && k.kernel == nullptr)
    code = D().library_kernel(&k.kernel, k.of->library, k.name.c_str());
  *kernel = k.kernel;
  return code;
}

// Loads the kernel onto the current device, so that no launch must wait for it.
CUresult LoadHere(CUkernel kernel) {
  CUfunction here = nullptr;
  CUresult code = D().kernel_function(&here, kernel);
  if (code == CUDA_SUCCESS && D().function_load != nullptr) code = D().function_load(here);
  int registers = 0;
  if (code == CUDA_SUCCESS)
    code = D().function_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, here);
  return code;
}

cudaError_t Launch(CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                   cudaStream_t stream) {
  return Stated(D().launch(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
                           block.y, block.z, static_cast<unsigned>(shared), stream, arguments,
                           nullptr));
}

CUdeviceptr At(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace
}  // namespace plumbline

using plumbline::D;
using plumbline::Stated;

extern "C" {

// ---- functions for generated code ------------------------------------------------------------

void** __cudaRegisterFatBinary(void* wrapper) {
  auto& all = plumbline::All();
  const plumbline::MutexLock lock(all.mutex);
  const auto* fat = static_cast<const __fatBinC_Wrapper_t*>(wrapper);
  return reinterpret_cast<void**>(&all.binaries.emplace_back(plumbline::Binary{fat->data}));
}
void __cudaRegisterFatBinaryEnd(void**) {}
// Does nothing: the library is never unloaded, and at the process's end the driver may be gone.
void __cudaUnregisterFatBinary(void**) {}
// Does nothing: no code reads or writes a device variable by its host name.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  auto& all = plumbline::All();
  const plumbline::MutexLock lock(all.mutex);
  all.kernels[host] = {reinterpret_cast<plumbline::Binary*>(binary), name};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  plumbline::t_shape = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = plumbline::t_shape.grid;
  *block = plumbline::t_shape.block;
  *shared = plumbline::t_shape.shared;
  *static_cast<cudaStream_t*>(stream) = plumbline::t_shape.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  CUkernel found = nullptr;
  const CUresult code = plumbline::KernelOf(host, &found);
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return Stated(code);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  return plumbline::Launch(reinterpret_cast<CUkernel>(kernel), grid, block, arguments, shared,
                           stream);
}
// Called by code of toolkits before 12.8.
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t stream) {
  CUkernel kernel = nullptr;
  const CUresult code = plumbline::KernelOf(host, &kernel);
  if (code != CUDA_SUCCESS) return Stated(code);
  return plumbline::Launch(kernel, grid, block, arguments, shared, stream);
}

// Called by kernels/core/cuda_batch.h, because it loads the kernel.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  std::memset(attributes, 0, sizeof(*attributes));
  CUkernel kernel = nullptr;
  CUresult code = plumbline::KernelOf(host, &kernel);
  if (code == CUDA_SUCCESS) code = plumbline::LoadHere(kernel);
  return Stated(code);
}

// ---- documented functions ----------------------------------------------------------------------

cudaError_t cudaGetLastError() {
  const cudaError_t last = plumbline::t_last;
  plumbline::t_last = cudaSuccess;
  return last;
}
const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  D().error_text(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unknown error";
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int ordinal) {
  CUdevice device = 0;
  CUresult code = D().device_get(&device, ordinal);
  if (code == CUDA_SUCCESS)
    code = D().device_attribute(value, static_cast<CUdevice_attribute>(which), device);
  return Stated(code);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  auto exchanged = static_cast<CUstreamCaptureMode>(*mode);
  const CUresult code = D().capture_mode(&exchanged);
  *mode = static_cast<cudaStreamCaptureMode>(exchanged);
  return Stated(code);
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  CUdeviceptr at = 0;
  const CUresult code = D().allocate(&at, bytes);
  *memory = reinterpret_cast<void*>(at);
  return Stated(code);
}
cudaError_t cudaFree(void* memory) { return Stated(D().free(plumbline::At(memory))); }
cudaError_t cudaHostRegister(void* pages, size_t bytes, unsigned flags) {
  static_assert(cudaHostRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP);
  return Stated(D().host_register(pages, bytes, flags));
}
cudaError_t cudaHostUnregister(void* pages) { return Stated(D().host_unregister(pages)); }
cudaError_t cudaHostGetDevicePointer(void** alias, void* pages, unsigned flags) {
  CUdeviceptr at = 0;
  const CUresult code = D().host_alias(&at, pages, flags);
  *alias = reinterpret_cast<void*>(at);
  return Stated(code);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return Stated(D().copy(plumbline::At(to), plumbline::At(from), bytes, stream));
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return Stated(
      D().set_bytes(plumbline::At(memory), static_cast<unsigned char>(value), bytes, stream));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  static_assert(cudaEventDisableTiming == CU_EVENT_DISABLE_TIMING);
  return Stated(D().event_create(event, flags));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return Stated(D().event_destroy(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Stated(D().event_record(event, stream));
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return Stated(D().event_query(event)); }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return Stated(D().event_elapsed(milliseconds, from, to));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  static_assert(cudaStreamNonBlocking == CU_STREAM_NON_BLOCKING);
  return Stated(D().stream_create(stream, flags));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Stated(D().stream_destroy(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Stated(D().stream_synchronize(stream));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  CUstreamCaptureStatus stated = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code = D().stream_capturing(stream, &stated);
  *status = static_cast<cudaStreamCaptureStatus>(stated);
  return Stated(code);
}
cudaError_t PLUMB_CAPTURE_INFO(cudaStream_t stream, cudaStreamCaptureStatus* status,
                               unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t**,
#if CUDART_VERSION >= 13000
                               const cudaGraphEdgeData**,
#endif
                               size_t*) {
  CUstreamCaptureStatus stated = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  const CUresult code = D().capture_info(stream, &stated, &number, graph, nullptr, nullptr);
  *status = static_cast<cudaStreamCaptureStatus>(stated);
  *id = number;
  return Stated(code);
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return Stated(D().stream_id(stream, id));
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* argument, cudaHostFn_t destroy,
                                 unsigned count, unsigned flags) {
  return Stated(D().user_object(object, argument, destroy, count, flags));
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return Stated(D().user_object_release(object, count));
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags) {
  return Stated(D().graph_retain(graph, object, count, flags));
}

}  // extern "C"
