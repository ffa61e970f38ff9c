// The fake device's table: streams are queues, and the work is done by the CPU references or by the
// kernels' code with emulated lanes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/sample/eager.h"
#include "tests/kernels/device/emulated_batch.h"
#include "tests/kernels/device/emulated_block.h"
#include "tests/kernels/device/fake_graph.h"
#include "tests/kernels/device/fake_state.h"

namespace plumbline::fake {
namespace {

// A runtime in the process ends before libraries that were loaded earlier.
bool g_ended = false;
struct AtExit {
  AtExit() {
    std::atexit([] {
      const std::lock_guard lock(TheFake().mutex);
      g_ended = true;
    });
  }
} g_at_exit;

// ---- the table ---------------------------------------------------------------------------------

DeviceStatus Open(int32_t, void** device, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "open", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  *device = new char;
  f.devices.insert(*device);
  return kDeviceOk;
}

void Close(void* device) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  if (f.devices.erase(device) == 0) f.Fault("an unknown device was closed");
  delete static_cast<char*>(device);
}

DeviceStatus Allocate(void*, uint64_t bytes, void** memory, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "allocate", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  *memory = ::operator new(bytes);
  std::memset(*memory, 0, bytes);
  f.memory.insert(*memory);
  return kDeviceOk;
}

void FreeMemory(void*, void* memory) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  ++f.calls["free_memory"];
  if (f.Touched(memory)) f.Fault("memory was freed under a stream");
  if (f.memory.erase(memory) == 0) f.Fault("unknown memory was freed");
  f.of_graphs.erase(memory);
  ::operator delete(memory);
}

DeviceStatus Pin(void*, void* pages, uint64_t bytes, void** alias, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "pin", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  const auto* begin = static_cast<const std::byte*>(pages);
  f.pinned[pages] = {begin, begin + bytes};
  *alias = pages;
  return kDeviceOk;
}

void Unpin(void*, void* pages) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  for (const auto& [stream, queue] : f.streams) {
    if (!queue.empty()) f.Fault("pages were unpinned under a stream");
  }
  if (f.pinned.erase(pages) == 0) f.Fault("unknown pages were unpinned");
}

DeviceStatus MakeEvent(void*, void** event, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "make_event", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  *event = new Event;
  f.events.insert(*event);
  return kDeviceOk;
}

void DestroyEvent(void*, void* event) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  if (f.Touched(event)) f.Fault("an event was destroyed under a stream");
  if (f.events.erase(event) == 0) f.Fault("an unknown event was destroyed");
  delete static_cast<Event*>(event);
}

uint64_t WorkspaceBytes(int64_t, int32_t experts) {
  return sizeof(RoutingRaw) + 64 * static_cast<uint64_t>(experts);
}

DeviceStatus StreamId(void*, void* stream, uint64_t* id, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "stream_id", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (f.capturing.contains(stream)) return kDeviceCapturing;
  *id = reinterpret_cast<uintptr_t>(stream);
  return kDeviceOk;
}

void UseWorkspace(Fake& f, void* workspace, void* stream) {
  if (!f.memory.contains(workspace)) f.Fault("the workspace is not device memory");
  const auto [user, fresh] = f.workspace_stream.emplace(workspace, stream);
  if (!fresh && user->second != stream && f.Touched(workspace)) {
    f.Fault("two streams use one workspace");
  }
  user->second = stream;
}

DeviceStatus Measure(void*, const RoutingPlan* plan, void* workspace, uint64_t bytes,
                     RoutingRaw* result, void* stream, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "measure", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (bytes < WorkspaceBytes(plan->tokens, plan->rule.experts)) f.Fault("small workspace");
  if (!f.Pinned(result, sizeof(*result))) f.Fault("the result is not pinned");
  UseWorkspace(f, workspace, stream);
  // The trainer's tensors are read when the stream reaches this work.
  f.Enqueue(stream,
            {[plan = *plan, result] { *result = MeasureRouting(plan, 1); }, {workspace, result}});
  return kDeviceOk;
}

void PackRows(const TensorView& v, std::byte* to) {
  const auto size = static_cast<int64_t>(DTypeSize(v.dtype));
  const int64_t columns = v.rank == 1 ? 1 : v.shape[1];
  const auto* from = static_cast<const std::byte*>(v.data);
  for (int64_t i = 0; i < v.shape[0]; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = i * v.stride[0] + (v.rank == 1 ? 0 : j * v.stride[1]);
      std::memcpy(to + (i * columns + j) * size, from + at * size, static_cast<size_t>(size));
    }
  }
}

DeviceStatus Copy(void*, const TensorView* from, void* to, void* stream, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "copy", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  const auto bytes = static_cast<size_t>(from->elements()) * DTypeSize(from->dtype);
  if (!f.Pinned(to, bytes)) f.Fault("a copy goes to memory that is not pinned");
  f.Enqueue(stream, {[from = *from, to] { PackRows(from, static_cast<std::byte*>(to)); }, {to}});
  return kDeviceOk;
}

DeviceStatus GatherOnDevice(void*, const ProductPlan* plan, void* to, void* stream,
                            DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "gather_product", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (!f.Pinned(to, plan->bytes)) f.Fault("a gather goes to memory that is not pinned");
  // Like the kernel's threads.
  const auto run = [plan = *plan, to] {
    for (int64_t i = 0; i < ProductThreads(plan); ++i)
      GatherProductOne(plan, i, static_cast<unsigned char*>(to));
  };
  f.Enqueue(stream, {run, {to}});
  return kDeviceOk;
}

constexpr int kThreads = 7;  // threads among which a block's work is split
constexpr uint32_t kBlocks = 3;

bool AllZero(const std::byte* memory, uint64_t bytes) {
  return std::all_of(memory, memory + bytes, [](std::byte b) { return b == std::byte{0}; });
}

// Does one launch's work, its blocks one after another: run(items, count, results).
template <typename Arguments, typename Run>
void RunLaunch(Fake* f, const Arguments& arguments, const SampledPart& sampled,
               const EagerCall& eager, Run run) {
  const EmulatedBlock block{kThreads, {}};
  auto* results = reinterpret_cast<std::byte*>(eager.results);
  if (*eager.arrived != 0 || !AllZero(results, arguments.result_bytes))
    f->Fault("a launch found results that are not zero");
  for (const uint32_t number : {2u, 0u, 1u}) BeginEager(block, sampled, kThreads, number, kBlocks);
  run(reinterpret_cast<const std::byte*>(arguments.items()), arguments.count, results);
  for (uint32_t number = 0; number < kBlocks; ++number) {
    uint32_t last = 0;
    EndEager(block, eager, kThreads, kBlocks, &last);
  }
}

// Does the same as EnqueueBatch: items are arguments of as many launches as needed.
template <typename Item, int kMost, typename Run>
DeviceStatus RunBatch(const char* name, const BatchShape& batch, const BatchMemory& memory,
                      const SampledPart* requested, void* stream, DeviceError* error, Run run) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, name, error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (memory.workspace_bytes < BatchWorkspace(batch)) f.Fault("small workspace");
  if (batch.device < 0) f.Fault("a batch of the host's");
  if (!f.Pinned(memory.staging, batch.bytes())) f.Fault("staging memory is not pinned");
  UseWorkspace(f, memory.workspace, stream);
  ForEachLaunch<Item, kMost>(
      batch, memory.items,
      [&](const ItemArguments<Item, kMost>& arguments, int64_t, uint64_t result) {
        const EagerCall eager = EagerAt(batch, memory, result, arguments.result_bytes);
        const SampledPart sampled =
            requested != nullptr && result == 0 ? *requested : SampledPart();
        f.Enqueue(stream, {[=, &f] { RunLaunch(&f, arguments, sampled, eager, run); },
                           {memory.workspace, memory.staging}});
        return 0;
      });
  return kDeviceOk;
}

DeviceStatus MeasureTensors(void*, const BatchShape* batch, const BatchMemory* memory,
                            const SampledPart* sampled, void* stream, DeviceError* error) {
  return RunBatch<TensorItem, kTensorsOfLaunch>("measure_tensors", *batch, *memory, sampled, stream,
                                                error, EmulateTensors);
}

DeviceStatus CheckUpdates(void*, const BatchShape* batch, const BatchMemory* memory,
                          const SampledPart* sampled, void* stream, DeviceError* error) {
  return RunBatch<UpdateItem, kUpdatesOfLaunch>("check_updates", *batch, *memory, sampled, stream,
                                                error, EmulateUpdates);
}

DeviceStatus Gather(void*, const BatchShape* batch, const BatchMemory* memory, const SampledPart*,
                    void* stream, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "gather", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (!f.Pinned(memory->staging, batch->bytes())) f.Fault("staging memory is not pinned");
  auto* staging = static_cast<std::byte*>(memory->staging);
  const auto* indices = reinterpret_cast<const uint64_t*>(
      staging + static_cast<size_t>(batch->items) * sizeof(GatherItem));
  ForEachLaunch<GatherItem, kGathersOfLaunch>(
      *batch, memory->items,
      [&](const ItemArguments<GatherItem, kGathersOfLaunch>& arguments, int64_t span,
          uint64_t result) {
        std::byte* results = staging + batch->results_at() + result;
        const auto run = [=] {
          for (int i = 0; i < arguments.count; ++i)
            EmulateGather(arguments.items()[i], indices + span, results);
        };
        f.Enqueue(stream, {run, {staging}});
        return 0;
      });
  return kDeviceOk;
}

DeviceStatus RecordEvent(void*, void* event, void* stream, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "record_event", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  auto* e = static_cast<Event*>(event);
  if (e->passed != e->recorded) f.Fault("an event was recorded again before it had passed");
  const uint64_t number = ++e->recorded;
  f.Enqueue(stream, {[e, number] { e->passed = number; }, {event}});
  return kDeviceOk;
}

DeviceStatus EventPassed(void*, void* event, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "event_passed", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (f.looks_until_release > 0 && --f.looks_until_release == 0) f.Release();
  const auto* e = static_cast<const Event*>(event);
  return e->passed == e->recorded ? kDeviceOk : kDeviceNotYet;
}

DeviceStatus MakeTimer(void*, void** timer, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "make_timer", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  *timer = new Timer;
  f.timers.insert(*timer);
  return kDeviceOk;
}

void DestroyTimer(void*, void* timer) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const auto* t = static_cast<Timer*>(timer);
  if (!t->passed[0] || !t->passed[1]) f.Fault("a timer was destroyed under a stream");
  if (f.timers.erase(timer) == 0) f.Fault("an unknown timer was destroyed");
  delete t;
}

DeviceStatus MarkTimer(void*, void* timer, int32_t end, void* stream, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "mark_timer", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  auto* t = static_cast<Timer*>(timer);
  if (!t->passed[end]) f.Fault("a timer was marked again before it had passed");
  t->passed[end] = false;
  f.marks[stream].push_back([t, end, &f] {
    t->mark[end] = f.clock_ns;
    t->passed[end] = true;
  });
  return kDeviceOk;
}

DeviceStatus ReadTimer(void*, void* timer, uint64_t* ns, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "read_timer", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  const auto* t = static_cast<const Timer*>(timer);
  if (!t->passed[0] || !t->passed[1]) f.Fault("a timer was read before it had passed");
  *ns = t->mark[1] - t->mark[0];
  return kDeviceOk;
}

}  // namespace

int32_t Enter(Fake& f, const char* name, DeviceError* error) {
  if (g_ended) f.Fault("called after its end");
  ++f.calls[name];
  const auto found = f.failures.find(name);
  if (found == f.failures.end() || found->second.after-- > 0) return kDeviceOk;
  const Failure failure = found->second;
  if (failure.for_good) {
    found->second.after = 0;
  } else {
    f.failures.erase(found);
  }
  std::snprintf(error->text, sizeof(error->text), "%s: made to fail", name);
  return failure.status;
}

}  // namespace plumbline::fake

extern "C" const plumbline::DeviceTable plumbline_device_table = {
    sizeof(plumbline::DeviceTable),
    plumbline::kDeviceTableVersion,
    plumbline::kDeviceSizes,
    plumbline::fake::Open,
    plumbline::fake::Close,
    plumbline::fake::Allocate,
    plumbline::fake::FreeMemory,
    plumbline::fake::Pin,
    plumbline::fake::Unpin,
    plumbline::fake::MakeEvent,
    plumbline::fake::DestroyEvent,
    plumbline::fake::WorkspaceBytes,
    plumbline::fake::StreamId,
    plumbline::fake::Measure,
    plumbline::fake::Copy,
    plumbline::fake::GatherOnDevice,
    plumbline::fake::MeasureTensors,
    plumbline::fake::CheckUpdates,
    plumbline::fake::Gather,
    plumbline::fake::RecordEvent,
    plumbline::fake::EventPassed,
    plumbline::fake::MakeTimer,
    plumbline::fake::DestroyTimer,
    plumbline::fake::MarkTimer,
    plumbline::fake::ReadTimer,
    plumbline::fake::WriteMemory,
    plumbline::fake::SetSlots,
    plumbline::fake::CaptureId,
    plumbline::fake::WatchGraph,
    plumbline::fake::CaptureTensor,
    plumbline::fake::CaptureUpdate,
    plumbline::fake::CaptureRouter,
    plumbline::fake::CaptureProductOf,
};
