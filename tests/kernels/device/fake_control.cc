// The control side of the fake device, for tests.
#include <utility>

#include "tests/kernels/device/fake_state.h"

namespace plumbline::fake {

Fake& TheFake() {
  static auto* fake = new Fake;
  return *fake;
}

namespace {

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
    f.captures[stream] = ++f.last_capture;
  } else {
    f.capturing.erase(stream);
  }
}

void Replay(void* captured, void* stream) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  const uint64_t replay = ++f.last_replay;
  for (Work work : f.graphs[captured]) {
    work.run = [run = std::move(work.of_replay), replay] { run(replay); };
    f.Enqueue(stream, std::move(work));
  }
}

// Work of these graphs may be pending; such work keeps its graph alive.
void Destroy(void* captured) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  f.graphs.erase(captured);
  f.watched.erase(captured);
}

uint64_t Calls(const char* name) {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  return f.calls[name];
}

uint64_t Held() {
  Fake& f = TheFake();
  const std::lock_guard lock(f.mutex);
  return f.devices.size() + f.memory.size() - f.of_graphs.size() + f.pinned.size() +
         f.events.size() + f.timers.size();
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
  f.marks.clear();
  f.workspace_stream.clear();
  f.calls.clear();
  f.failures.clear();
  f.capturing.clear();
  f.graphs.clear();
  f.watched.clear();
  f.faults = 0;
}

}  // namespace
}  // namespace plumbline::fake

extern "C" const plumbline::FakeDeviceControl plumbline_fake_device = {
    plumbline::fake::Hold,     plumbline::fake::ReleaseAfter, plumbline::fake::Advance,
    plumbline::fake::FailCall, plumbline::fake::Capture,      plumbline::fake::Replay,
    plumbline::fake::Destroy,  plumbline::fake::Calls,        plumbline::fake::Held,
    plumbline::fake::Faults,   plumbline::fake::Reset,
};
