#include "tests/kernels/fake_device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace plumbline {
namespace {

struct Failure {
  int after = 0;
  int32_t status = kDeviceFailed;
  bool for_good = false;
};

struct Event {
  uint64_t recorded = 0;  // how often
  uint64_t passed = 0;
};

struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

// One piece of a stream's work, and what of memory it touches.
struct Work {
  std::function<void()> run;
  std::vector<const void*> touches;
};

struct Fake {
  std::mutex mutex;
  bool holding = false;
  int looks_until_release = 0;  // 0: it stays as it is
  std::map<void*, std::deque<Work>> streams;
  std::map<std::string, uint64_t> calls;
  std::map<std::string, Failure> failures;
  std::set<void*> capturing;
  std::set<void*> devices, memory, events;
  std::map<void*, Range> pinned;
  std::map<const void*, void*> workspace_stream;  // of work that is under way
  uint64_t faults = 0;

  void Fault(const char* text) {
    ++faults;
    std::fprintf(stderr, "fake device: %s\n", text);
  }

  bool Touched(const void* what) {
    for (const auto& [stream, queue] : streams) {
      for (const Work& w : queue) {
        for (const void* t : w.touches) {
          if (t == what) return true;
        }
      }
    }
    return false;
  }

  bool Pinned(const void* begin, size_t bytes) {
    const auto* b = static_cast<const std::byte*>(begin);
    for (const auto& [pages, range] : pinned) {
      if (b >= range.begin && b + bytes <= range.end) return true;
    }
    return false;
  }

  void Enqueue(void* stream, Work work) {
    if (capturing.contains(stream)) Fault("work was enqueued on a stream that is being captured");
    streams[stream].push_back(std::move(work));
    if (!holding) Run(stream, -1);
  }

  void Release() {
    holding = false;
    for (auto& [stream, queue] : streams) Run(stream, -1);
  }

  void Run(void* stream, int most) {
    std::deque<Work>& queue = streams[stream];
    for (; most != 0 && !queue.empty(); --most) {
      queue.front().run();
      queue.pop_front();
    }
  }
};

Fake& TheFake() {
  static auto* fake = new Fake;
  return *fake;
}

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

// Counts the call; its status when it is to fail.
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

// ---- the table
// -----------------------------------------------------------------------------------

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
  if (f.Touched(memory)) f.Fault("memory was freed under a stream");
  if (f.memory.erase(memory) == 0) f.Fault("unknown memory was freed");
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

uint64_t WorkspaceBytes(int64_t, int32_t experts) { return 64 * static_cast<uint64_t>(experts); }

DeviceStatus StreamId(void*, void* stream, uint64_t* id, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "stream_id", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (f.capturing.contains(stream)) return kDeviceCapturing;
  *id = reinterpret_cast<uintptr_t>(stream);
  return kDeviceOk;
}

DeviceStatus Measure(void*, const RoutingPlan* plan, void* workspace, uint64_t bytes,
                     RoutingRaw* result, void* stream, DeviceError* error) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const int32_t status = Enter(f, "measure", error);
  if (status != kDeviceOk) return static_cast<DeviceStatus>(status);
  if (!f.memory.contains(workspace)) f.Fault("the workspace is not device memory");
  if (bytes < WorkspaceBytes(plan->tokens, plan->rule.experts)) f.Fault("small workspace");
  if (!f.Pinned(result, sizeof(*result))) f.Fault("the result is not pinned");
  const auto [user, fresh] = f.workspace_stream.emplace(workspace, stream);
  if (!fresh && user->second != stream && f.Touched(workspace)) {
    f.Fault("two streams use one workspace");
  }
  user->second = stream;
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

// ---- the test's side
// -----------------------------------------------------------------------------

void Hold(bool yes) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  if (yes) {
    f.holding = true;
  } else {
    f.Release();
  }
}

void ReleaseAfter(int n) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  f.looks_until_release = n;
}

void Advance(int n) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  for (auto& [stream, queue] : f.streams) f.Run(stream, n);
}

void FailCall(const char* call, int nth, int32_t status, bool for_good) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  f.failures[call] = {nth, status, for_good};
}

void Capture(void* stream, bool yes) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  if (yes) {
    f.capturing.insert(stream);
  } else {
    f.capturing.erase(stream);
  }
}

uint64_t Calls(const char* name) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  return f.calls[name];
}

uint64_t Held() {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  return f.devices.size() + f.memory.size() + f.pinned.size() + f.events.size();
}

uint64_t Faults() {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  return f.faults;
}

void Reset() {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  f.looks_until_release = 0;
  f.Release();
  f.streams.clear();
  f.workspace_stream.clear();
  f.calls.clear();
  f.failures.clear();
  f.capturing.clear();
  f.faults = 0;
}

}  // namespace
}  // namespace plumbline

extern "C" const plumbline::DeviceTable plumbline_device_table = {
    sizeof(plumbline::DeviceTable),
    plumbline::kDeviceTableVersion,
    sizeof(plumbline::RoutingPlan),
    sizeof(plumbline::RoutingRaw),
    sizeof(plumbline::ProductPlan),
    plumbline::Open,
    plumbline::Close,
    plumbline::Allocate,
    plumbline::FreeMemory,
    plumbline::Pin,
    plumbline::Unpin,
    plumbline::MakeEvent,
    plumbline::DestroyEvent,
    plumbline::WorkspaceBytes,
    plumbline::StreamId,
    plumbline::Measure,
    plumbline::Copy,
    plumbline::GatherOnDevice,
    plumbline::RecordEvent,
    plumbline::EventPassed,
};

extern "C" const plumbline::FakeDeviceControl plumbline_fake_device = {
    plumbline::Hold,     plumbline::ReleaseAfter, plumbline::Advance,
    plumbline::FailCall, plumbline::Capture,      plumbline::Calls,
    plumbline::Held,     plumbline::Faults,       plumbline::Reset,
};
