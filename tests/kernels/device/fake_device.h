// A fake device: streams are queues of closures, "device memory" is the host's, and measurements
// use the CPU reference or the kernels' code with emulated lanes. The test controls it: it holds
// streams, fails on demand, and reports that a stream is being captured. It also checks its user:
// it counts a fault if memory is freed or written while a stream may still use it, or if two
// streams use a workspace at once.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device/table.h"

namespace plumbline {

// Plain data, because the library is opened by the agent, and again by the test that controls it.
struct FakeDeviceControl {
  // Lets streams run by themselves (the initial state), or holds them.
  void (*hold)(bool yes);
  // Lets streams run by themselves from the `n`th "event_passed" on, so that the waiting code polls
  // the device n times first.
  void (*release_after)(int n);
  // Lets every stream do its next `n` pieces of work.
  void (*advance)(int n);
  // Makes the `nth` call from now (0: the next) of that name return `status`, and if `for_good` all
  // later ones too. "open", "allocate", "pin", "make_event", "stream_id", "measure", "copy",
  // "gather_product", "measure_tensors", "check_updates", "gather", "record_event", "event_passed",
  // "make_timer", "mark_timer", "read_timer", "write_memory", "set_slots", "watch_graph",
  // "capture_tensor", "capture_update", "capture_routing", "capture_product".
  void (*fail)(const char* call, int nth, int32_t status, bool for_good);
  void (*capture)(void* stream, bool yes);
  // Enqueues on `stream` the work that was captured on `captured`, as one graph.
  void (*replay)(void* captured, void* stream);
  // Destroys the work that was captured on `captured`; pending work continues.
  void (*destroy)(void* captured);
  uint64_t (*calls)(const char* name);
  // Returns the number of held devices, memory blocks (except those of graphs), pinned ranges and
  // events.
  uint64_t (*held)();
  uint64_t (*faults)();  // each fault is also printed
  // Restores the initial state. Held resources stay held.
  void (*reset)();
};

inline constexpr char kFakeDeviceSymbol[] = "plumbline_fake_device";

}  // namespace plumbline

extern "C" __attribute__((visibility("default")))
const plumbline::FakeDeviceControl plumbline_fake_device;
