// The CUDA device behind a RoutingRing (routing_ring.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/routing_plan.h"

namespace plumbline {

// Of one device; every call makes it current and puts back what was. Thread-safe. Errors are
// Internal with CUDA's own text.
class CudaRoutingDevice {
 public:
  struct Slot {
    void* workspace = nullptr;     // device memory
    RoutingRaw* result = nullptr;  // pinned host memory
    void* event = nullptr;         // cudaEvent_t without timing
  };

  explicit CudaRoutingDevice(int ordinal) : ordinal_(ordinal) {}

  static size_t WorkspaceBytes(int64_t tokens, int experts);
  absl::Status Allocate(size_t workspace_bytes, Slot* slot) const;
  void Free(Slot* slot) const;
  // `stream`: a cudaStream_t of this device. Safe under stream capture only if the graph runs once.
  absl::Status Launch(const RoutingInput& in, const Slot& slot, size_t workspace_bytes,
                      void* stream, RoutingPlan* plan) const;
  absl::StatusOr<bool> Done(const Slot& slot) const;

 private:
  int ordinal_;
};

}  // namespace plumbline
