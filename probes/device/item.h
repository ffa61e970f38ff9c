// The data that pass through a device's ring: the owner's tag of a call, its outcome, and its
// result.
#pragma once

#include <cstdint>

#include "kernels/device/table.h"
#include "probes/calls/matmul_call.h"
#include "probes/calls/routing_call.h"
#include "probes/device/job.h"

namespace plumbline::probes {

// The outcome of a call. All outcomes except the first two are losses.
enum class DeviceOutcome : uint8_t {
  kTaken,
  kTakenWithoutRows,  // the step is sampled, and the ring had no space for rows or elements
  kNotLoaded,         // no device library, no driver, or no such device
  kStarting,          // another thread is preparing the device
  kRingFull,          // no record or no event is free
  kTooManyStreams,    // kDeviceStreams other streams have calls in flight
  kCapturing,         // the stream is being captured into a graph
  kTooManyCaptured,   // graphs that exist already have the largest number of calls
  kOtherContext,      // the stream belongs to another context of the device: a green one
  kRefused,           // the call is wrong
  kFailed,            // the device failed, now or before
};

// Data of the owner: pass through the ring unchanged.
struct DeviceTag {
  void* site = nullptr;
  int64_t step = 0;
  uint32_t call = 0;
  bool sampled = false;
  uint64_t order = 0;  // Evidence.order
};

// The item at the front. Valid until Pop.
struct DeviceItem {
  DeviceTag tag;
  bool measured = false;   // false: the device failed or the call was abandoned; only `why` is set
  bool abandoned = false;  // it was abandoned
  uint64_t gpu_ns = 0;     // the GPU's time, of sampled calls and of replays; 0: not timed
  uint64_t unkept = 0;     // number of a graph's replays without space: then nothing else is set
  DeviceError why{};
  // One of these, or a router's call, below.
  const MatmulCall* product = nullptr;  // sampled
  const TensorJob* tensor = nullptr;
  const UpdateJob* update = nullptr;
  const std::byte* carried = nullptr;  // a call's body, its tensors with it (carried.h)
  RoutingCall call;  // views of the record; null pointers if the rows were left out
  const RoutingPlan* plan = nullptr;
  const RoutingRaw* raw = nullptr;
};

}  // namespace plumbline::probes
