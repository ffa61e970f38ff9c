// The calls of one device that lie in CUDA graphs: what each was captured with, and the record of a
// step in which its replays leave what they measured (kernels/core/graph_slot.h).
//
//   GraphRecord | a GraphEntry a due call | slots of all calls, as they are copied to the device |
//   a tally an entry | sections: `replays` of each entry, the first with room for elements
//
// Device memory that a graph may still touch is never freed: graphs outlive the run. Calls of
// graphs that are gone (captured_graphs.h) leave, and their slots go to others.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/byte_ring.h"
#include "base/mutex.h"
#include "kernels/device/table.h"
#include "probes/calls/measure.h"
#include "probes/device/captured_graphs.h"
#include "probes/device/item.h"

namespace plumbline::probes {

inline constexpr uint32_t kMaxCaptured = 1024;  // calls of one device, in graphs that exist
inline constexpr uint32_t kMaxReplays = 256;    // of one call in one step
inline constexpr uint32_t kFirstReplays = 8;    // that there is room for before any was seen

// What a captured call's site is asked for at the step that begins.
struct GraphWish {
  bool due = false;
  MeasureOptions options;  // of the step's first replay; later ones keep no elements
};

// Who knows the sites.
class GraphOwner {
 public:
  virtual ~GraphOwner() = default;
  virtual GraphWish Wish(void* site) = 0;
  // Once a site that is due, and has `captured` calls on this device: numbers for so many calls a
  // replay and that many replays, of which steps so far have shown `expected`. The first number.
  virtual uint32_t Reserve(void* site, uint32_t captured, uint32_t replays, uint32_t expected) = 0;
  // Numbers for so many observations: the first of them.
  virtual uint64_t ReserveOrders(uint64_t observations) = 0;
};

// One captured call; fixed from then on.
class CapturedCall {
 public:
  virtual ~CapturedCall() = default;
  // Of its part of a section. `elements`: with room for what the options ask for.
  virtual size_t Bytes(const MeasureOptions& options, bool elements) const = 0;
  // Writes the part at `body`, and where things lie into the section's `work`.
  virtual void Put(const MeasureOptions& options, bool elements, std::byte* body,
                   GraphWork* work) const = 0;
  virtual void Show(const std::byte* body, DeviceItem* item) const = 0;

  void* site = nullptr;
  std::shared_ptr<CapturedGraph> graph;
  uint32_t place = 0;             // of the device's slots
  uint32_t number = 0;            // among its site's captured calls
  CapturedCall* first = nullptr;  // of these
  bool in_step = false;           // its slot is open

  // Of the open step, the first one's for all; the stepping thread's.
  GraphWish wish;
  uint32_t of_site = 0;
  uint32_t first_number = 0;
};

struct GraphEntry {
  const CapturedCall* call;
  DeviceTag tag;  // of the first replay
  uint32_t per_replay;
  uint64_t sections;  // bytes from the record's begin
  uint64_t first_bytes;
  uint64_t later_bytes;

  uint64_t SectionAt(uint32_t replay) const {
    return sections + (replay == 0 ? 0 : first_bytes + (replay - 1) * later_bytes);
  }
};

struct GraphRecord {
  uint32_t entries;
  uint32_t replays;  // sections of each
  uint64_t slots_at;
  uint64_t tallies_at;
  uint32_t slots;

  const GraphEntry* entry(uint32_t i) const;
  const GraphCounts& tally(uint32_t i) const;
  const GraphWork& work(uint32_t entry, uint32_t replay) const;
  // Did every replay begin and end in its own section? If not, one ran beside its step.
  bool Ordered() const;
  // Does any first replay keep elements, if there is room?
  bool AnySampled() const;
  // The most replays of any call.
  uint64_t MostReplays() const;
};

class GraphCalls {
 public:
  // `ring`: where records are put. Who reads one that is not passed may look at its calls.
  GraphCalls(const DeviceTable* table, void* device, const ByteRing* ring)
      : table_(table), device_(device), ring_(ring), graphs_(table, device) {}

  // Puts the call's launches into the graph that `stream` is being captured into, and whose replays
  // are in the order of `replays_on`, the same one for all calls. Allocates. Any
  // thread. kTooManyCaptured: kMaxCaptured are in graphs that exist. kRefused: *error says why,
  // nothing was done. kFailed: the same, for want of memory; or, with *broken, because a launch
  // failed.
  DeviceOutcome Capture(const RoutingCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);
  DeviceOutcome Capture(const MatmulCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);
  DeviceOutcome Capture(const TensorCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);
  DeviceOutcome Capture(const UpdateCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);

  // Any thread.
  uint32_t size() const { return size_.load(std::memory_order_acquire); }

  // Where steps are opened and closed, once there is a call.
  void* replays_on() const { return replays_on_; }

  // What follows is the stepping thread's.

  // Asks for each call's wish; false: none is due.
  bool Ask(GraphOwner* owner);
  // Of a record with what was asked for, and so many replays of each call.
  size_t RecordBytes(uint32_t replays, bool elements);
  // Writes it: `memory` of RecordBytes of the same arguments, `alias` its address on the device.
  GraphRecord* Put(int64_t step, uint32_t replays, uint32_t expected, bool elements,
                   GraphOwner* owner, std::byte* memory, const std::byte* alias) const;
  // The slots of what was asked for are closed, or were never opened.
  void Close();
  // On the device.
  GraphSlot* slots() const { return slots_; }
  // When the run is over, and nothing under way: frees what no graph may still touch. May wait.
  void Free();

 private:
  struct Wanted {
    CapturedCall* call;
    size_t first_bytes, later_bytes;
    const MeasureOptions& options() const { return call->first->wish.options; }
  };
  struct Gone {
    std::unique_ptr<CapturedCall> call;
    uint64_t mark;  // in the ring: no record before it names the call
  };
  DeviceStatus MakeSlots(DeviceError* error);
  DeviceStatus NewMemory(CapturedGraph* graph, const std::vector<std::byte>& content, void** memory,
                         DeviceError* error);
  // Calls of graphs that are gone leave, but those of an open step.
  void Sweep() PLUMB_REQUIRES(calls_mutex_);
  void Link() PLUMB_REQUIRES(calls_mutex_);
  uint32_t FreeSlot();  // kMaxCaptured: there is none
  void Publish(std::unique_ptr<CapturedCall> call, void* replays_on) PLUMB_REQUIRES(capturing_);
  // prepare(graph, &memory) gets what the call needs, launch(memory, device_call) puts it into
  // the graph.
  template <typename Prepare, typename Launch>
  DeviceOutcome Add(std::unique_ptr<CapturedCall> call, void* stream, void* replays_on, void* site,
                    DeviceError* error, bool* broken, Prepare prepare, Launch launch);
  template <typename Captured, typename Call>
  DeviceOutcome AddJob(const Call& call, DeviceGraphBatchCall capture, void* stream,
                       void* replays_on, void* site, DeviceError* error, bool* broken);

  const DeviceTable* const table_;
  void* const device_;
  const ByteRing* const ring_;
  Mutex capturing_;  // one capture at a time
  CapturedGraphs graphs_;
  bool named_ PLUMB_GUARDED_BY(capturing_) = false;
  void* replays_on_ = nullptr;    // as slots_; once named_
  uint64_t* sections_ = nullptr;  // of GraphCall, behind the slots
  uint64_t* told_ = nullptr;      // the same, behind those
  uint32_t* arrived_ = nullptr;   // and those
  void* slots_memory_ = nullptr;  // of slots_ and what follows them, also before it is written
  GraphSlot* slots_ = nullptr;    // set before size_ is more than 0
  // Held for moments: the stepping thread waits for no capture.
  Mutex calls_mutex_ PLUMB_ACQUIRED_AFTER(capturing_);
  std::vector<std::unique_ptr<CapturedCall>> calls_ PLUMB_GUARDED_BY(calls_mutex_);  // as captured
  std::vector<Gone> gone_ PLUMB_GUARDED_BY(calls_mutex_);
  std::array<bool, kMaxCaptured> slot_taken_ PLUMB_GUARDED_BY(calls_mutex_){};
  std::atomic<uint32_t> size_{0};
  std::vector<Wanted> wanted_;
  uint32_t asked_ = 0;  // slots up to the last that was taken
};

}  // namespace plumbline::probes
