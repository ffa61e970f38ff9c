#include "kernels/cuda_routing_device.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/routing_device.h"

namespace plumbline {
namespace {

absl::Status Check(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // the trainer must not find our error in its next call
  return absl::InternalError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

// The device that is current for the length of a scope.
class Current {
 public:
  explicit Current(int ordinal) {
    cudaGetDevice(&before_);
    if (before_ != ordinal) cudaSetDevice(ordinal);
    changed_ = before_ != ordinal;
  }
  ~Current() {
    if (changed_) cudaSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace

size_t CudaRoutingDevice::WorkspaceBytes(int64_t tokens, int experts) {
  return RoutingWorkspaceBytes(tokens, experts);
}

absl::Status CudaRoutingDevice::Allocate(size_t workspace_bytes, Slot* slot) const {
  const Current current(ordinal_);
  Slot made;
  void* pinned = nullptr;
  cudaEvent_t event = nullptr;
  absl::Status status = Check("workspace", cudaMalloc(&made.workspace, workspace_bytes));
  if (status.ok()) status = Check("pinned slot", cudaMallocHost(&pinned, sizeof(RoutingRaw)));
  if (status.ok()) {
    status = Check("event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  made.result = static_cast<RoutingRaw*>(pinned);
  made.event = event;
  if (!status.ok()) {
    Free(&made);
    return status;
  }
  *slot = made;
  return status;
}

void CudaRoutingDevice::Free(Slot* slot) const {
  const Current current(ordinal_);
  const Slot old = std::exchange(*slot, Slot{});
  if (old.event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(old.event));
  if (old.result != nullptr) cudaFreeHost(old.result);
  if (old.workspace != nullptr) cudaFree(old.workspace);
}

absl::Status CudaRoutingDevice::Launch(const RoutingInput& in, const Slot& slot,
                                       size_t workspace_bytes, void* stream,
                                       RoutingPlan* plan) const {
  const Current current(ordinal_);
  absl::Status status =
      LaunchRouting(in, slot.workspace, workspace_bytes, slot.result, stream, plan);
  if (!status.ok()) return status;
  return Check("event", cudaEventRecord(static_cast<cudaEvent_t>(slot.event),
                                        static_cast<cudaStream_t>(stream)));
}

absl::StatusOr<bool> CudaRoutingDevice::Done(const Slot& slot) const {
  const Current current(ordinal_);
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(slot.event));
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  if (absl::Status status = Check("routing kernel", error); !status.ok()) return status;
  return true;
}

}  // namespace plumbline
