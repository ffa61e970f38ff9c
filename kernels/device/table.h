// The boundary between the agent and a library that measures on a device: libplumbline_cuda.so, or
// a stand-in in tests. The agent opens it when the first device tensor comes, so that it loads
// where neither a driver nor a runtime of the device exists.
//
// Only plain data crosses; both sides come from one build (the sizes are checked). Nothing throws.
// Every function may be called from any thread, but never at the same time for one device memory
// block, event or pinned range. Each leaves the thread's current device, its capture mode and the
// trainer's own error state as they were. None waits for the device but free_memory, unpin and
// close, which may, and are never called on a trainer's thread, and allocate and write_memory,
// which wait for what they write themselves.
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

// What, and the device's own words. Set with every negative status, and where something could not
// be got ready; NUL-terminated.
struct DeviceError {
  char text[256];
};

enum DeviceStatus : int32_t {
  kDeviceOk = 0,
  kDeviceNotYet = 1,        // event_passed: the stream has not got there
  kDeviceCapturing = 2,     // stream_id: what the stream is given now goes into a graph; of what
                            // gets something ready: not while somebody captures, but later
  kDeviceOtherContext = 3,  // stream_id: the stream is the device's, but of a context of its own
  kDeviceRefused = -1,      // an argument is at fault; nothing was done
  kDeviceFailed = -2,       // the device or its driver failed
};

// CUDA's handle of the default stream of whatever thread uses it.
inline void* const kPerThreadStream = reinterpret_cast<void*>(uintptr_t{2});

// Of what crosses, in bytes.
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

// Enqueues one batch of tensors, updates or gathers (batch_shape.h), in one launch where its items
// fit into a launch's arguments. When the stream gets there the results stand in the staging
// memory, for the host's FinishItem. `sampled`: what is copied besides, or null; null of gathers.
using DeviceBatchCall = DeviceStatus (*)(void* device, const BatchShape* batch,
                                         const BatchMemory* memory, const SampledPart* sampled,
                                         void* stream, DeviceError* error);

// The same of a batch that a graph holds: its items and zeros for its results stand in the
// workspace.
using DeviceGraphBatchCall = DeviceStatus (*)(void* device, const BatchShape* batch,
                                              void* workspace, const GraphCall* call, void* stream,
                                              DeviceError* error);

struct DeviceTable {
  uint32_t size;      // sizeof(DeviceTable)
  uint32_t version;   // kDeviceTableVersion
  DeviceSizes sizes;  // kDeviceSizes

  // Gets device `ordinal` (DLPack's device_id) ready: its kernels are loaded, nothing more. FAILED
  // when there is no driver, no such device, or when the process does not use it: no context is
  // made on a device that the trainer has none on. This, allocate, pin, make_event, make_timer and
  // write_memory ask for nothing that spoils a capture, the thread's own or another's; where the
  // driver refuses all the same they say CAPTURING.
  DeviceStatus (*open)(int32_t ordinal, void** device, DeviceError* error);
  void (*close)(void* device);

  // Zeros. Waits for nothing but its own writing of them, also while a graph is captured.
  DeviceStatus (*allocate)(void* device, uint64_t bytes, void** memory, DeviceError* error);
  void (*free_memory)(void* device, void* memory);
  // Pins the caller's pages so that the device may write to them; *alias is their address there.
  // They stay readable on the host even when the device is gone.
  DeviceStatus (*pin)(void* device, void* pages, uint64_t bytes, void** alias, DeviceError* error);
  void (*unpin)(void* device, void* pages);
  DeviceStatus (*make_event)(void* device, void** event, DeviceError* error);
  void (*destroy_event)(void* device, void* event);

  // Device memory that `measure` works in, for up to that many rows and experts.
  uint64_t (*workspace_bytes)(int64_t tokens, int32_t experts);

  // What follows is called on the trainer's threads, `stream` being the trainer's.

  // A number of the stream's own: no two streams of a process that may be at work at the same time
  // have the same. CAPTURING; OTHER_CONTEXT: a green context's, where our kernels are not loaded;
  // REFUSED for a stream of another device.
  DeviceStatus (*stream_id)(void* device, void* stream, uint64_t* id, DeviceError* error);
  // Enqueues the measurement of `plan`, whose tensors are on the device. When the stream gets there
  // *result (an alias) is written whole; the host's FinishRouting turns it into what the CPU
  // reference gives, bit for bit.
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

  // Has the stream passed the event as it was last recorded? OK, NOT_YET, or FAILED: what was
  // enqueued before it may or may not have been done.
  DeviceStatus (*event_passed)(void* device, void* event, DeviceError* error);

  // Timers: two marks on a stream, `end` 0 and 1. Once the stream has passed both, the GPU's time
  // between them; marked again after that.
  DeviceStatus (*make_timer)(void* device, void** timer, DeviceError* error);
  void (*destroy_timer)(void* device, void* timer);
  DeviceStatus (*mark_timer)(void* device, void* timer, int32_t end, void* stream,
                             DeviceError* error);
  DeviceStatus (*read_timer)(void* device, void* timer, uint64_t* ns, DeviceError* error);

  // Graphs (graph_slot.h). write_memory: host memory, or zeros where `from` is null, to device
  // memory, done when it returns; may be called while the thread captures, and waits for nothing
  // but itself.
  DeviceStatus (*write_memory)(void* device, void* to, const void* from, uint64_t bytes,
                               DeviceError* error);
  // Enqueues the opening of slots from `from` (an alias), or, where that is null, their closing.
  DeviceStatus (*set_slots)(void* device, GraphSlot* slots, const GraphSlot* from, uint32_t count,
                            void* stream, DeviceError* error);
  // The number of the capture that `stream` is in; REFUSED when it is in none.
  DeviceStatus (*capture_id)(void* device, void* stream, uint64_t* id, DeviceError* error);
  // Calls gone(argument) once, from any thread: when the graph that `stream` is being captured
  // into, its copies and all that was instantiated of them are destroyed and what they had under
  // way is done; or at once where that cannot be known (a negative status). `gone` may wait for
  // nothing, and may come after close.
  DeviceStatus (*watch_graph)(void* device, void* stream, void (*gone)(void*), void* argument,
                              DeviceError* error);
  // Put into the graph that `stream` is being captured into; REFUSED when it is not: see
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
