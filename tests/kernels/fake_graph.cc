#include "tests/kernels/fake_graph.h"

#include <cstring>
#include <utility>

#include "tests/kernels/emulated_batch.h"
#include "tests/kernels/fake_state.h"

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
DeviceStatus Capture(const char* name, void* memory, GraphSlot* slot, void* stream,
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
  (f.graphs[stream].push_back({std::move(work), {slot}}), ...);
  return kDeviceOk;
}

// As the kernels' Closed.
bool Closed(const GraphSlot* slot) {
  if (slot->section == 0) return true;
  WorkOf(*slot)->begun = 1;
  return false;
}

// As DeliverKernel.
void Deliver(std::byte* results, uint64_t bytes, GraphSlot* slot) {
  const GraphSlot now = *slot;
  if (now.section != 0) {
    for (int t = 0; t < kThreads; ++t) {
      TakeResults(now, reinterpret_cast<uint32_t*>(results), bytes / 4, static_cast<uint64_t>(t),
                  kThreads);
      GatherElements(now, t, kThreads);
      CopyRows(now, t, kThreads);
    }
  }
  Advance(slot);
}

template <typename Run>
DeviceStatus CaptureBatch(const char* name, const BatchShape& batch, void* workspace,
                          GraphSlot* slot, void* stream, DeviceError* error, Run run) {
  auto* on = static_cast<std::byte*>(workspace);
  std::byte* results = on + batch.results_at();
  const auto measure = [=] {
    if (!Closed(slot)) run(on, batch.items, results);
  };
  const auto deliver = [=] { Deliver(results, batch.result_bytes, slot); };
  return Capture(name, workspace, slot, stream, error, measure, deliver);
}

}  // namespace

DeviceStatus WriteMemory(void*, void* to, const void* from, uint64_t bytes, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "write_memory", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (!f.memory.contains(to)) f.Fault("unknown memory was written");
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

DeviceStatus CaptureTensor(void*, const BatchShape* batch, void* workspace, GraphSlot* slot,
                           void* stream, DeviceError* error) {
  const auto run = [](const std::byte* items, int n, std::byte* results) {
    const auto* item = reinterpret_cast<const TensorItem*>(items);
    for (const auto* end = item + n; item != end; ++item) {
      for (int64_t at = 0; at < item->count; at += kSpanElements) EmulateSpan(*item, at, results);
    }
  };
  return CaptureBatch("capture_tensor", *batch, workspace, slot, stream, error, run);
}

DeviceStatus CaptureUpdate(void*, const BatchShape* batch, void* workspace, GraphSlot* slot,
                           void* stream, DeviceError* error) {
  const auto run = [](const std::byte* items, int n, std::byte* results) {
    const auto* item = reinterpret_cast<const UpdateItem*>(items);
    for (const auto* end = item + n; item != end; ++item) {
      for (int64_t at = 0; at < item->count; at += kUpdateBlock) EmulateBlock(*item, at, results);
    }
  };
  return CaptureBatch("capture_update", *batch, workspace, slot, stream, error, run);
}

DeviceStatus CaptureRouter(void*, const RoutingPlan* plan, void* workspace, uint64_t,
                           GraphSlot* slot, void* stream, DeviceError* error) {
  const auto measure = [plan = *plan, slot] {
    if (Closed(slot)) return;
    const RoutingRaw raw = MeasureRouting(plan, 1);
    std::memcpy(SectionOf(*slot) + WorkOf(*slot)->results_at, &raw, sizeof(raw));
  };
  const auto finish = [slot] {
    if (slot->section != 0) {
      for (int t = 0; t < kThreads; ++t) CopyRows(*slot, t, kThreads);
    }
    Advance(slot);
  };
  return Capture("capture_routing", workspace, slot, stream, error, measure, finish);
}

DeviceStatus CaptureProductOf(void*, int64_t, GraphSlot* slot, void* stream, DeviceError* error) {
  const auto gather = [slot] {
    if (Closed(slot) || WorkOf(*slot)->plan_at == 0) return;
    ProductPlan plan;
    std::memcpy(&plan, SectionOf(*slot) + WorkOf(*slot)->plan_at, sizeof(plan));
    for (int64_t i = 0; i < ProductThreads(plan); ++i) {
      GatherProductOne(plan, i, SectionOf(*slot) + WorkOf(*slot)->plan_to);
    }
  };
  const auto deliver = [slot] { Deliver(nullptr, 0, slot); };
  return Capture("capture_product", nullptr, slot, stream, error, gather, deliver);
}

}  // namespace plumbline::fake
