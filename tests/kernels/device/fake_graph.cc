#include "tests/kernels/device/fake_graph.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "kernels/device/graph_product.h"
#include "kernels/sample/replay.h"
#include "tests/kernels/device/emulated_batch.h"
#include "tests/kernels/device/emulated_block.h"
#include "tests/kernels/device/fake_state.h"

namespace plumbline::fake {
namespace {

constexpr int kThreads = 7;  // threads among which a block's work is split
constexpr uint32_t kBlocks = 3;

DeviceStatus Refused(DeviceError* error) {
  std::snprintf(error->text, sizeof(error->text),
                "cuda_stream: expected a stream that is being captured");
  return kDeviceRefused;
}

// Stores `work` in the stream's graph. Each piece gets the replay's number.
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
  if (f.watched[stream].empty()) f.Fault("a call was captured into a graph that is not watched");
  const auto keep = [&](std::function<void(uint64_t)> run) {
    f.graphs[stream].push_back(
        {nullptr, {call.slot, memory}, f.watched[stream].back(), std::move(run)});
  };
  (keep(std::move(work)), ...);
  return kDeviceOk;
}

// Captures one launch of three blocks as three pieces, so that a slot may change between them: two
// blocks begin; the third begins, and all measure; all end.
template <typename Run>
DeviceStatus CaptureBatch(const char* name, const BatchShape& batch, void* workspace,
                          const GraphCall& call, void* stream, DeviceError* error, Run run) {
  auto* on = static_cast<std::byte*>(workspace);
  std::byte* results = on + batch.results_at();
  auto replays = std::make_shared<std::map<uint64_t, std::array<uint64_t, kBlocks>>>();
  const EmulatedBlock block{kThreads, {}};
  const auto begin = [=](uint64_t replay, uint32_t number) {
    ReplayPlace place;
    (*replays)[replay][number] = BeginBlock(block, call, kThreads, number, kBlocks, &place);
  };
  const auto first = [=](uint64_t replay) {
    begin(replay, 2);
    begin(replay, 0);
  };
  const auto measure = [=](uint64_t replay) {
    begin(replay, 1);
    const auto& reported = (*replays)[replay];
    if (std::any_of(reported.begin(), reported.end(),
                    [](uint64_t section) { return section != 0; }))
      run(on, batch.items, results);
  };
  const auto end = [=](uint64_t replay) {
    for (const uint32_t number : {2, 0, 1}) {
      ReplayPlace place;
      EndBlock(block, call, kThreads, number, kBlocks, (*replays)[replay][number],
               reinterpret_cast<uint32_t*>(results), batch.result_bytes / 4, &place);
    }
    replays->erase(replay);
  };
  return Capture(name, workspace, call, stream, error, first, measure, end);
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
  if (from == nullptr) {
    std::memset(to, 0, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
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

// Captures of a stream are distinguished by their number.
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

// The counts come from the CPU reference, so there is no workspace to keep in order.
DeviceStatus CaptureRouter(void*, const RoutingPlan* plan, void* workspace, uint64_t,
                           const GraphCall* captured, void* stream, DeviceError* error) {
  const GraphCall call = *captured;
  auto* raw = static_cast<RoutingRaw*>(workspace);
  const auto begin = [call](uint64_t) { BeginReplay(call); };
  const auto measure = [plan = *plan, call, raw](uint64_t) {
    if (*call.section != 0) *raw = MeasureRouting(plan, 1);
  };
  const auto finish = [call, raw](uint64_t) {
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
  return Capture("capture_routing", workspace, call, stream, error, begin, measure, finish);
}

DeviceStatus CaptureProductOf(void*, int64_t, const GraphCall* captured, void* stream,
                              DeviceError* error) {
  const GraphCall call = *captured;
  const auto gather = [call](uint32_t number) {
    return [call, number](uint64_t) {
      PlanPlace place;
      GatherPlanned(EmulatedBlock{kThreads, {}}, call, kThreads, number, 2, &place);
    };
  };
  return Capture("capture_product", nullptr, call, stream, error, gather(1), gather(0));
}

}  // namespace plumbline::fake
