// What passes through a device's ring: what the owner says of a call, what becomes of it, and what
// comes out.
#pragma once

#include <cstdint>

#include "kernels/device/table.h"
#include "probes/calls/matmul_call.h"
#include "probes/calls/routing_call.h"
#include "probes/device/job.h"

namespace plumbline::probes {

// What becomes of a call. All but the first two are losses.
enum class DeviceOutcome : uint8_t {
  kTaken,
  kTakenWithoutRows,  // the step is sampled, and the ring had no room for rows or elements
  kNotLoaded,         // no device library, no driver, or no such device
  kStarting,          // another thread is just getting the device ready
  kRingFull,          // no record or no event is free
  kTooManyStreams,    // kDeviceStreams others have calls in flight
  kCapturing,         // the stream is being captured into a graph
  kTooManyCaptured,   // graphs that exist hold as many calls as there may be
  kOtherContext,      // the stream is of another context of the device: a green one
  kRefused,           // the call is at fault
  kFailed,            // the device failed, now or before
};

// The owner's: goes through the ring unchanged.
struct DeviceTag {
  void* site = nullptr;
  int64_t step = 0;
  uint32_t call = 0;
  bool sampled = false;
  uint64_t order = 0;  // Evidence.order
};

// What stands at the front. Valid until Pop.
struct DeviceItem {
  DeviceTag tag;
  bool measured = false;   // false: the device failed or was given up; `why` alone is set
  bool abandoned = false;  // it was given up
  uint64_t gpu_ns = 0;     // the GPU's time for it, of sampled calls and of replays; 0: not timed
  uint64_t unkept = 0;     // so many replays of a graph found no room: nothing else is set
  DeviceError why{};
  // One of these, or a router's call, below.
  const MatmulCall* product = nullptr;  // sampled
  const TensorJob* tensor = nullptr;
  const UpdateJob* update = nullptr;
  const std::byte* carried = nullptr;  // a call's body, its tensors with it (carried.h)
  RoutingCall call;  // views of the record; null pointers where the rows were left out
  const RoutingPlan* plan = nullptr;
  const RoutingRaw* raw = nullptr;
};

}  // namespace plumbline::probes
