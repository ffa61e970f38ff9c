// The fake device's graphs: work captured on a stream is stored, and done at each replay.
#pragma once

#include "kernels/device/table.h"

namespace plumbline::fake {

DeviceStatus WriteMemory(void* device, void* to, const void* from, uint64_t bytes,
                         DeviceError* error);
DeviceStatus SetSlots(void* device, GraphSlot* slots, const GraphSlot* from, uint32_t count,
                      void* stream, DeviceError* error);
DeviceStatus CaptureId(void* device, void* stream, uint64_t* id, DeviceError* error);
DeviceStatus WatchGraph(void* device, void* stream, void (*gone)(void*), void* argument,
                        DeviceError* error);
DeviceStatus CaptureTensor(void* device, const BatchShape* batch, void* workspace,
                           const GraphCall* call, void* stream, DeviceError* error);
DeviceStatus CaptureUpdate(void* device, const BatchShape* batch, void* workspace,
                           const GraphCall* call, void* stream, DeviceError* error);
DeviceStatus CaptureRouter(void* device, const RoutingPlan* plan, void* workspace,
                           uint64_t workspace_bytes, const GraphCall* call, void* stream,
                           DeviceError* error);
DeviceStatus CaptureProductOf(void* device, int64_t threads, const GraphCall* call, void* stream,
                              DeviceError* error);

}  // namespace plumbline::fake
