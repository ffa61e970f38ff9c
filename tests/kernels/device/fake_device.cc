// The fake device's table: streams are queues, the work is done by the CPU references or by the
// kernels' own code, emulated.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/kernels/device/emulated_batch.h"
#include "tests/kernels/device/fake_graph.h"
#include "tests/kernels/device/fake_state.h"

namespace plumbline::fake {
namespace {

// A runtime that is in the process ends before the libraries that were loaded earlier.
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
  // The trainer's tensors are read when the stream gets there.
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
  // As the kernel's threads do.
  const auto run = [plan = *plan, to] {
    for (int64_t i = 0; i < ProductThreads(plan); ++i)
      GatherProductOne(plan, i, static_cast<unsigned char*>(to));
  };
  f.Enqueue(stream, {run, {to}});
  return kDeviceOk;
}

// Items up, zeros, run(items, results) in the workspace, results back: when the stream gets there.
template <typename Run>
DeviceStatus RunBatch(const char* name, const BatchShape& batch, void* staging, void* workspace,
                      uint64_t bytes, void* stream, DeviceError* error, Run run) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, name, error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (bytes < batch.bytes()) f.Fault("small workspace");
  if (batch.device < 0) f.Fault("a batch of the host's");
  if (!f.Pinned(staging, batch.bytes())) f.Fault("staging memory is not pinned");
  UseWorkspace(f, workspace, stream);
  const auto work = [batch, staging, workspace, run] {
    auto* up = static_cast<std::byte*>(staging);
    auto* on = static_cast<std::byte*>(workspace);
    std::memcpy(on, up, batch.item_bytes);
    std::memset(on + batch.results_at(), 0, batch.result_bytes);
    run(on, batch.items, on + batch.results_at());
    std::memcpy(up + batch.results_at(), on + batch.results_at(), batch.result_bytes);
  };
  f.Enqueue(stream, {work, {workspace, staging}});
  return kDeviceOk;
}

DeviceStatus MeasureTensors(void*, const BatchShape* batch, void* staging, void* workspace,
                            uint64_t bytes, void* stream, DeviceError* error) {
  return RunBatch("measure_tensors", *batch, staging, workspace, bytes, stream, error,
                  EmulateTensors);
}

DeviceStatus CheckUpdates(void*, const BatchShape* batch, void* staging, void* workspace,
                          uint64_t bytes, void* stream, DeviceError* error) {
  return RunBatch("check_updates", *batch, staging, workspace, bytes, stream, error,
                  EmulateUpdates);
}

DeviceStatus Gather(void*, const BatchShape* batch, void* staging, void* workspace, uint64_t bytes,
                    void* stream, DeviceError* error) {
  const auto run = [](const std::byte* items, int n, std::byte* results) {
    const auto* item = reinterpret_cast<const GatherItem*>(items);
    const auto* indices = reinterpret_cast<const uint64_t*>(item + n);
    for (int i = 0; i < n; ++i) EmulateGather(item[i], indices, results);
  };
  return RunBatch("gather", *batch, staging, workspace, bytes, stream, error, run);
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
