#include "tests/kernels/device/fake_graph.h"

#include <cstring>
#include <utility>

#include "kernels/device/graph_deliver.h"
#include "kernels/device/graph_product.h"
#include "tests/kernels/device/emulated_batch.h"
#include "tests/kernels/device/emulated_block.h"
#include "tests/kernels/device/fake_state.h"

namespace plumbline::fake {
namespace {

constexpr int kThreads = 7;  // that a launch's work is split among

DeviceStatus Refused(DeviceError* error) {
  std::snprintf(error->text, sizeof(error->text),
                "cuda_stream: expected a stream that is being captured");
  return kDeviceRefused;
}

// Keeps `work` for the stream's graph.
template <typename... Works>
DeviceStatus Capture(const char* name, void* memory, const GraphCall& call, void* stream,
                     DeviceError* error, Works... work) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, name, error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (!f.capturing.contains(stream)) return Refused(error);
  if (memory != nullptr) {
    if (!f.memory.contains(memory)) f.Fault("a graph's memory is not the device's");
    f.of_graphs.insert(memory);
  }
  if (f.watched[stream].empty()) f.Fault("a call was captured into a graph that nobody watches");
  const auto keep = [&](std::function<void()> run) {
    f.graphs[stream].push_back({std::move(run), {call.slot, memory}, f.watched[stream].back()});
  };
  keep([call] { BeginReplay(call); });  // as BeginKernel, or the router's first, does
  (keep(std::move(work)), ...);
  return kDeviceOk;
}

// As DeliverKernel, in blocks that come in any order.
void Deliver(std::byte* results, uint64_t bytes, const GraphCall& call) {
  for (const uint32_t number : {2, 0, 1}) {
    DeliverPlace place;
    DeliverReplay(EmulatedBlock{kThreads, {}}, call, kThreads, number, 3,
                  reinterpret_cast<uint32_t*>(results), bytes / 4, &place);
  }
}

template <typename Run>
DeviceStatus CaptureBatch(const char* name, const BatchShape& batch, void* workspace,
                          const GraphCall& call, void* stream, DeviceError* error, Run run) {
  auto* on = static_cast<std::byte*>(workspace);
  std::byte* results = on + batch.results_at();
  const auto measure = [=] {
    if (*call.section != 0) run(on, batch.items, results);
  };
  const auto deliver = [=] { Deliver(results, batch.result_bytes, call); };
  return Capture(name, workspace, call, stream, error, measure, deliver);
}

}  // namespace

DeviceStatus WriteMemory(void*, void* to, const void* from, uint64_t bytes, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "write_memory", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (!f.memory.contains(to)) f.Fault("unknown memory was written");
  if (f.Touched(to)) f.Fault("memory was written under a stream");
  f.of_graphs.insert(to);
  std::memcpy(to, from, bytes);
  return kDeviceOk;
}

DeviceStatus SetSlots(void*, GraphSlot* slots, const GraphSlot* from, uint32_t count, void* stream,
                      DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "set_slots", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  const size_t bytes = count * sizeof(GraphSlot);
  if (from != nullptr && !f.Pinned(from, bytes)) f.Fault("slots are not pinned");
  const auto run = [=] {
    if (from == nullptr) {
      std::memset(static_cast<void*>(slots), 0, bytes);
    } else {
      std::memcpy(static_cast<void*>(slots), from, bytes);
    }
  };
  f.Enqueue(stream, {run, {slots, from}});
  return kDeviceOk;
}

// A stream's captures are told apart by their number.
DeviceStatus CaptureId(void*, void* stream, uint64_t* id, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "capture_id", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (!f.capturing.contains(stream)) return Refused(error);
  *id = f.captures[stream];
  return kDeviceOk;
}

DeviceStatus WatchGraph(void*, void* stream, void (*gone)(void*), void* argument,
                        DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "watch_graph", error);
  if (status == kDeviceOk && f.capturing.contains(stream)) {
    f.watched[stream].emplace_back(argument, gone);
    return kDeviceOk;
  }
  gone(argument);
  return status != kDeviceOk ? static_cast<DeviceStatus>(status) : Refused(error);
}

DeviceStatus CaptureTensor(void*, const BatchShape* batch, void* workspace, const GraphCall* call,
                           void* stream, DeviceError* error) {
  return CaptureBatch("capture_tensor", *batch, workspace, *call, stream, error, EmulateTensors);
}

DeviceStatus CaptureUpdate(void*, const BatchShape* batch, void* workspace, const GraphCall* call,
                           void* stream, DeviceError* error) {
  return CaptureBatch("capture_update", *batch, workspace, *call, stream, error, EmulateUpdates);
}

// The counts are the CPU reference's: there is no workspace to be left in disorder.
DeviceStatus CaptureRouter(void*, const RoutingPlan* plan, void* workspace, uint64_t,
                           const GraphCall* captured, void* stream, DeviceError* error) {
  const GraphCall call = *captured;
  auto* raw = static_cast<RoutingRaw*>(workspace);
  const auto measure = [plan = *plan, call, raw] {
    if (*call.section != 0) *raw = MeasureRouting(plan, 1);
  };
  const auto finish = [call, raw] {
    const EmulatedBlock block{kThreads};
    uint64_t decided = 0;
    if (const uint64_t section = DecideSection(block, call, &decided); section != 0) {
      GraphWork work;
      TakeDown(block, kThreads, WorkOf(section), sizeof(work), &work);
      block.Each([&](int t) { CopyRows(work, section, t, kThreads); });
      std::memcpy(PlaceIn(section, work.results_at), raw, sizeof(*raw));
    }
    EndReplay(call);
  };
  return Capture("capture_routing", workspace, call, stream, error, measure, finish);
}

DeviceStatus CaptureProductOf(void*, int64_t, const GraphCall* captured, void* stream,
                              DeviceError* error) {
  const GraphCall call = *captured;
  const auto gather = [call] {
    PlanPlace place;
    ProductPlan plan;
    for (const int64_t first : {0, kThreads}) {  // two blocks
      GatherPlanned(EmulatedBlock{kThreads}, call, kThreads, first, 2 * kThreads, &place, &plan);
    }
  };
  const auto deliver = [call] { Deliver(nullptr, 0, call); };
  return Capture("capture_product", nullptr, call, stream, error, gather, deliver);
}

}  // namespace plumbline::fake
