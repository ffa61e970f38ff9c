// The calls of one device in CUDA graphs: the data with which each was captured, and the record of
// a step in which its replays leave their measurements (kernels/core/graph_slot.h).
//
//   GraphRecord | one GraphEntry per due call | slots of all calls, as they are copied to the
//   device | one tally per entry | sections: `replays` of each entry, the first with space for
//   elements
//
// Device memory that a graph may still use is never freed: graphs outlive the run. Calls of graphs
// that are gone (captured_graphs.h) leave, and their slots are reused.
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
inline constexpr uint32_t kFirstReplays = 8;    // number of replays for which there is space before
                                                // any replay was seen

// The request for a captured call's site at the step that begins.
struct GraphWish {
  bool due = false;
  MeasureOptions options;  // for the step's first replay; later ones keep no elements
};

// The owner of the sites.
class GraphOwner {
 public:
  virtual ~GraphOwner() = default;
  virtual GraphWish Wish(void* site) = 0;
  // Called once for a site that is due and has `captured` calls on this device: reserves numbers
  // for this many calls per replay and this many replays; steps so far have shown `expected`.
  // Returns the first number.
  virtual uint32_t Reserve(void* site, uint32_t captured, uint32_t replays, uint32_t expected) = 0;
  // Reserves numbers for this many observations; returns the first one.
  virtual uint64_t ReserveOrders(uint64_t observations) = 0;
};

// One captured call; fixed after its capture.
class CapturedCall {
 public:
  virtual ~CapturedCall() = default;
  // Returns the bytes of its part of a section. `elements`: with space for the requested elements.
  virtual size_t Bytes(const MeasureOptions& options, bool elements) const = 0;
  // Writes the part at `body`, and its layout into the section's `work`.
  virtual void Put(const MeasureOptions& options, bool elements, std::byte* body,
                   GraphWork* work) const = 0;
  virtual void Show(const std::byte* body, DeviceItem* item) const = 0;

  void* site = nullptr;
  std::shared_ptr<CapturedGraph> graph;
  uint32_t place = 0;             // index of its slot on the device
  uint32_t number = 0;            // index among its site's captured calls
  CapturedCall* first = nullptr;  // the first of these
  bool in_step = false;           // its slot is open

  // For the open step, stored in the first call for all; used by the stepping thread.
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
  // Returns true if every replay began and ended in its own section. If not, a replay ran outside
  // of its step.
  bool Ordered() const;
  // Returns true if some first replay keeps elements when there is space.
  bool AnySampled() const;
  // Returns the largest number of replays of a call.
  uint64_t MostReplays() const;
};

class GraphCalls {
 public:
  // `ring`: the ring of the records. A reader of a record that is not passed may use its calls.
  GraphCalls(const DeviceTable* table, void* device, const ByteRing* ring)
      : table_(table), device_(device), ring_(ring), graphs_(table, device) {}

  // Adds the call's launches to the graph that `stream` is being captured into. Its replays are in
  // the order of `replays_on`, which is the same for all calls. Allocates. Thread-safe. Returns
  // kTooManyCaptured if graphs that exist have kMaxCaptured calls; kRefused with *error if nothing
  // was done; kFailed with *error if memory is missing or, with *broken, if a launch failed.
  DeviceOutcome Capture(const RoutingCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);
  DeviceOutcome Capture(const MatmulCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);
  DeviceOutcome Capture(const TensorCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);
  DeviceOutcome Capture(const UpdateCall& call, void* stream, void* replays_on, void* site,
                        DeviceError* error, bool* broken);

  // Thread-safe.
  uint32_t size() const { return size_.load(std::memory_order_acquire); }

  // Returns the stream on which steps are opened and closed, once there is a call.
  void* replays_on() const { return replays_on_; }

  // The following functions are called by the stepping thread.

  // Queries the request of each call; returns false if none is due.
  bool Query(GraphOwner* owner);
  // Returns the bytes of a record with the requested calls and this number of replays of each.
  size_t RecordBytes(uint32_t replays, bool elements);
  // Writes the record: `memory` of RecordBytes with the same arguments, `alias` its address on the
  // device.
  GraphRecord* Put(int64_t step, uint32_t replays, uint32_t expected, bool elements,
                   GraphOwner* owner, std::byte* memory, const std::byte* alias) const;
  // Called when the slots of the requested calls are closed, or were never opened.
  void Close();
  // Returns the address on the device.
  GraphSlot* slots() const { return slots_; }
  // Called when the run is over and nothing is in progress: frees memory that no graph may still
  // use. May wait.
  void Free();

 private:
  struct Wanted {
    CapturedCall* call;
    size_t first_bytes, later_bytes;
    const MeasureOptions& options() const { return call->first->wish.options; }
  };
  struct Gone {
    std::unique_ptr<CapturedCall> call;
    uint64_t mark;  // position in the ring: no record before it names the call
  };
  DeviceStatus MakeSlots(DeviceError* error);
  DeviceStatus NewMemory(CapturedGraph* graph, const std::vector<std::byte>& content, void** memory,
                         DeviceError* error);
  // Removes calls of graphs that are gone, except those of an open step.
  void Sweep() PLUMB_REQUIRES(calls_mutex_);
  void Link() PLUMB_REQUIRES(calls_mutex_);
  uint32_t FreeSlot();  // kMaxCaptured: there is none
  void Publish(std::unique_ptr<CapturedCall> call, void* replays_on) PLUMB_REQUIRES(capturing_);
  // prepare(graph, &memory) allocates the call's memory, launch(memory, device_call) adds it to the
  // graph.
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
  void* replays_on_ = nullptr;    // like slots_; valid once named_
  uint64_t* sections_ = nullptr;  // of GraphCall, after the slots
  uint64_t* reported_ = nullptr;  // of GraphCall, after those
  uint32_t* arrived_ = nullptr;   // of GraphCall, after those
  void* slots_memory_ = nullptr;  // memory of slots_ and of the words after them; set before it is
                                  // written
  GraphSlot* slots_ = nullptr;    // set before size_ becomes more than 0
  // Held for short times: the stepping thread waits for no capture.
  Mutex calls_mutex_ PLUMB_ACQUIRED_AFTER(capturing_);
  // in the order of capture
  std::vector<std::unique_ptr<CapturedCall>> calls_ PLUMB_GUARDED_BY(calls_mutex_);
  std::vector<Gone> gone_ PLUMB_GUARDED_BY(calls_mutex_);
  std::array<bool, kMaxCaptured> slot_taken_ PLUMB_GUARDED_BY(calls_mutex_){};
  std::atomic<uint32_t> size_{0};
  std::vector<Wanted> wanted_;
  uint32_t requested_ = 0;  // slots up to the last one in use
};

}  // namespace plumbline::probes
