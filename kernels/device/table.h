// The boundary between the agent and a library that measures on a device: libplumbline_cuda.so, or
// a stand-in in tests. The agent opens it with the first device tensor, so that the agent loads on
// machines without a driver or runtime of the device.
//
// Only plain data cross; both sides come from one build (the sizes are checked). No function
// throws. Every function may be called from any thread, but never at the same time for one device
// memory block, event or pinned range. Each function restores the thread's current device, its
// capture mode and the trainer's error state. Functions do not wait for the device, with these
// exceptions: free_memory, unpin and close may wait, and are never called on a trainer's thread;
// allocate and write_memory wait for their own writes.
#pragma once

#include <cstdint>

#include "base/tensor_view.h"
#include "kernels/core/batch_shape.h"
#include "kernels/core/graph_slot.h"
#include "kernels/product/gather.h"
#include "kernels/routing/plan.h"
#include "kernels/sample/batch.h"
#include "kernels/sample/eager.h"
#include "kernels/tensor/batch.h"
#include "kernels/update/batch.h"

namespace plumbline {

inline constexpr uint32_t kDeviceTableVersion = 7;
inline constexpr char kDeviceTableSymbol[] = "plumbline_device_table";

// The failed action and the device's own message. Set with every negative status, and if something
// could not be prepared; NUL-terminated.
struct DeviceError {
  char text[256];
};

enum DeviceStatus : int32_t {
  kDeviceOk = 0,
  kDeviceNotYet = 1,        // event_passed: the stream has not reached the event
  kDeviceCapturing = 2,     // stream_id: new work on the stream is recorded into a graph; functions
                            // that prepare: impossible during a capture, possible later
  kDeviceOtherContext = 3,  // stream_id: the stream belongs to the device, but to another context
  kDeviceRefused = -1,      // an argument is wrong; nothing was done
  kDeviceFailed = -2,       // the device or its driver failed
};

// CUDA's handle of the default stream of the calling thread.
inline void* const kPerThreadStream = reinterpret_cast<void*>(uintptr_t{2});

// Sizes of the structs that cross, in bytes.
struct DeviceSizes {
  uint32_t routing_plan;
  uint32_t routing_raw;
  uint32_t product_plan;
  uint32_t batch_shape;
  uint32_t tensor_item;
  uint32_t tensor_raw;
  uint32_t update_item;
  uint32_t update_raw;
  uint32_t gather_item;
  uint32_t sampled_part;
  uint32_t graph_work;
  uint32_t graph_slot;

  bool operator==(const DeviceSizes&) const = default;
};

inline constexpr DeviceSizes kDeviceSizes = {
    sizeof(RoutingPlan), sizeof(RoutingRaw),  sizeof(ProductPlan), sizeof(BatchShape),
    sizeof(TensorItem),  sizeof(TensorRaw),   sizeof(UpdateItem),  sizeof(UpdateRaw),
    sizeof(GatherItem),  sizeof(SampledPart), sizeof(GraphWork),   sizeof(GraphSlot)};

// Enqueues one batch of tensors, updates or gathers (batch_shape.h), in one launch if its items fit
// into a launch's arguments. When the stream reaches it, the results are in the staging memory, for
// the host's FinishItem. `sampled`: additional copies, or null; null for gathers.
using DeviceBatchCall = DeviceStatus (*)(void* device, const BatchShape* batch,
                                         const BatchMemory* memory, const SampledPart* sampled,
                                         void* stream, DeviceError* error);

// Does the same for a batch in a graph: its items, and zeros for its results, are in the workspace.
using DeviceGraphBatchCall = DeviceStatus (*)(void* device, const BatchShape* batch,
                                              void* workspace, const GraphCall* call, void* stream,
                                              DeviceError* error);

struct DeviceTable {
  uint32_t size;      // sizeof(DeviceTable)
  uint32_t version;   // kDeviceTableVersion
  DeviceSizes sizes;  // kDeviceSizes

  // Prepares device `ordinal` (DLPack's device_id): loads its kernels, nothing else. Returns FAILED
  // if there is no driver or no such device, or if the process does not use it: no context is
  // created on a device on which the trainer has none. This function, allocate, pin, make_event,
  // make_timer and write_memory make no calls that invalidate a capture, the thread's own or
  // another's. If the driver refuses nevertheless, they return CAPTURING.
  DeviceStatus (*open)(int32_t ordinal, void** device, DeviceError* error);
  void (*close)(void* device);

  // Allocates zeroed memory. Waits only for its own writes, also during a capture.
  DeviceStatus (*allocate)(void* device, uint64_t bytes, void** memory, DeviceError* error);
  void (*free_memory)(void* device, void* memory);
  // Pins the caller's pages so that the device may write to them; *alias is their address there.
  // They stay readable on the host even if the device is gone.
  DeviceStatus (*pin)(void* device, void* pages, uint64_t bytes, void** alias, DeviceError* error);
  void (*unpin)(void* device, void* pages);
  DeviceStatus (*make_event)(void* device, void** event, DeviceError* error);
  void (*destroy_event)(void* device, void* event);

  // Returns the bytes of device memory in which `measure` works, for up to this number of rows and
  // experts.
  uint64_t (*workspace_bytes)(int64_t tokens, int32_t experts);

  // The following functions are called on the trainer's threads; `stream` is the trainer's.

  // Returns a number of the stream: two streams of a process that may work at the same time have
  // different numbers. Returns CAPTURING; OTHER_CONTEXT for a stream of a green context, in which
  // our kernels are not loaded; REFUSED for a stream of another device.
  DeviceStatus (*stream_id)(void* device, void* stream, uint64_t* id, DeviceError* error);
  // Enqueues the measurement of `plan`, whose tensors are on the device. When the stream reaches
  // it, *result (an alias) is written completely; the host's FinishRouting turns it into the result
  // of the CPU reference, bit for bit.
  DeviceStatus (*measure)(void* device, const RoutingPlan* plan, void* workspace,
                          uint64_t workspace_bytes, RoutingRaw* result, void* stream,
                          DeviceError* error);
  // Enqueues a dense C-ordered copy of a tensor of rank 1 or 2 to `to` (an alias).
  DeviceStatus (*copy)(void* device, const TensorView* from, void* to, void* stream,
                       DeviceError* error);
  // Enqueues the gather of a product's sampled parts to `to` (an alias), plan->bytes bytes.
  DeviceStatus (*gather_product)(void* device, const ProductPlan* plan, void* to, void* stream,
                                 DeviceError* error);
  DeviceBatchCall measure_tensors;
  DeviceBatchCall check_updates;
  DeviceBatchCall gather;
  DeviceStatus (*record_event)(void* device, void* event, void* stream, DeviceError* error);

  // Returns OK if the stream has passed the event as it was last recorded, NOT_YET, or FAILED: then
  // work that was enqueued before it may or may not have been done.
  DeviceStatus (*event_passed)(void* device, void* event, DeviceError* error);

  // Timers: two marks on a stream, `end` 0 and 1. Once the stream has passed both, returns the
  // GPU's time between them; the timer can be marked again after that.
  DeviceStatus (*make_timer)(void* device, void** timer, DeviceError* error);
  void (*destroy_timer)(void* device, void* timer);
  DeviceStatus (*mark_timer)(void* device, void* timer, int32_t end, void* stream,
                             DeviceError* error);
  DeviceStatus (*read_timer)(void* device, void* timer, uint64_t* ns, DeviceError* error);

  // Graphs (graph_slot.h). write_memory writes host memory, or zeros if `from` is null, to device
  // memory, and is done when it returns. It may be called while the thread captures, and waits only
  // for itself.
  DeviceStatus (*write_memory)(void* device, void* to, const void* from, uint64_t bytes,
                               DeviceError* error);
  // Enqueues the opening of slots from `from` (an alias), or, if that is null, their closing.
  DeviceStatus (*set_slots)(void* device, GraphSlot* slots, const GraphSlot* from, uint32_t count,
                            void* stream, DeviceError* error);
  // Returns the number of the capture of `stream`, or REFUSED if there is none.
  DeviceStatus (*capture_id)(void* device, void* stream, uint64_t* id, DeviceError* error);
  // Calls gone(argument) once, from any thread, when the graph that `stream` is being captured
  // into, its copies and all of its instances are destroyed and idle. If this cannot be observed,
  // calls `gone` at once and returns a negative status. `gone` must not wait, and may be called
  // after close.
  DeviceStatus (*watch_graph)(void* device, void* stream, void (*gone)(void*), void* argument,
                              DeviceError* error);
  // Add a call to the graph that `stream` is being captured into; REFUSED if it is not: see
  // graph_device.h. `workspace` is device memory.
  DeviceGraphBatchCall capture_tensor;
  DeviceGraphBatchCall capture_update;
  DeviceStatus (*capture_routing)(void* device, const RoutingPlan* plan, void* workspace,
                                  uint64_t workspace_bytes, const GraphCall* call, void* stream,
                                  DeviceError* error);
  DeviceStatus (*capture_product)(void* device, int64_t threads, const GraphCall* call,
                                  void* stream, DeviceError* error);
};

}  // namespace plumbline

// Exported by libplumbline_cuda.so.
extern "C" __attribute__((visibility("default")))
const plumbline::DeviceTable plumbline_device_table;
