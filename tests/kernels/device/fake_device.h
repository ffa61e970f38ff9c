// A device without a device: streams are queues of closures, "device memory" is the host's, and the
// measurement is the CPU reference's, or the kernels' own code with emulated lanes. It obeys the
// test: it holds its streams, fails on demand, says that a stream is being captured. And it watches
// its user: memory that is freed or written while a stream may still touch it, or a workspace that
// two streams use at once, is a fault.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device/table.h"

namespace plumbline {

// Plain data: the library is opened by the agent, and a second time by the test that steers it.
struct FakeDeviceControl {
  // Streams go on by themselves (as at the start), or stand still until they are told to.
  void (*hold)(bool yes);
  // Streams go on by themselves from the `n`th "event_passed" from now on: whoever waits for the
  // device has looked at it so often.
  void (*release_after)(int n);
  // Lets every stream do its next `n` pieces of work.
  void (*advance)(int n);
  // The `nth` call from now (0: the next) of that name returns `status`, and all later ones too if
  // `for_good`. "open", "allocate", "pin", "make_event", "stream_id", "measure", "copy",
  // "gather_product", "measure_tensors", "check_updates", "gather", "record_event", "event_passed",
  // "make_timer", "mark_timer", "read_timer",
  // "write_memory", "set_slots", "watch_graph", "capture_tensor", "capture_update",
  // "capture_routing", "capture_product".
  void (*fail)(const char* call, int nth, int32_t status, bool for_good);
  void (*capture)(void* stream, bool yes);
  // Enqueues on `stream` what was captured on `captured`, as one graph.
  void (*replay)(void* captured, void* stream);
  // Destroys what was captured on `captured`: what is under way goes on.
  void (*destroy)(void* captured);
  uint64_t (*calls)(const char* name);
  // What is held: devices, memory blocks (but graphs'), pinned ranges and events.
  uint64_t (*held)();
  uint64_t (*faults)();  // and each is printed
  // Everything as at the start. What is held stays held.
  void (*reset)();
};

inline constexpr char kFakeDeviceSymbol[] = "plumbline_fake_device";

}  // namespace plumbline

extern "C" __attribute__((visibility("default")))
const plumbline::FakeDeviceControl plumbline_fake_device;
