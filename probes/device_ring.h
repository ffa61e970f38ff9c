// Calls in flight on one device: records of pinned memory that the device fills on the
// trainer's own streams, and that the drain thread empties in the order of the calls.
//
//   trainer's threads   Observe: reserves a record, enqueues kernels, copies and an event. No
//                       synchronisation, no lock, and no allocation but for the first call of a
//                       width (see Prepare); what finds no room is refused
//   drain thread        Front/Pop: takes what the device has finished
//
// A record holds the call's description, the measurement, and on sampled steps the rows. Kernels of
// calls on different streams may overlap, so each stream that has calls in flight has a workspace
// of its own, given to the next stream when they are done.
//
// Once anything fails the device is left alone: a fault is sticky in CUDA, and asking again would
// only cost the trainer time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/byte_ring.h"
#include "kernels/device_table.h"
#include "probes/matmul_call.h"
#include "probes/routing_call.h"

namespace plumbline::probes {

struct DeviceLimits {
  uint64_t ring_bytes = 32ull << 20;  // pinned, rounded up to a power of two
  uint64_t sample_max_bytes = 8ull << 20;
  uint32_t events = 1024;  // calls in flight
};

// Streams that may have calls in flight at once, and rows of one call.
inline constexpr int kDeviceStreams = 4;
inline constexpr int64_t kMaxDeviceTokens = int64_t{1} << 22;

// What becomes of a call. All but the first two are losses.
enum class DeviceOutcome : uint8_t {
  kTaken,
  kTakenWithoutRows,  // the step is sampled, and the ring had no room for the rows
  kNotLoaded,         // no device library, no driver, or no such device
  kStarting,          // another thread is just getting the device ready
  kRingFull,          // no record or no event is free
  kTooManyStreams,    // kDeviceStreams others have calls in flight
  kCapturing,         // the stream is being captured into a graph
  kRefused,           // the call is at fault
  kFailed,            // the device failed, now or before
};

// The owner's: goes through the ring unchanged.
struct DeviceTag {
  void* site = nullptr;
  int64_t step = 0;
  uint32_t call = 0;
  bool sampled = false;
  uint64_t order = 0;  // Evidence.order
};

// What stands at the front. Valid until Pop.
struct DeviceItem {
  DeviceTag tag;
  bool measured = false;   // false: the device failed or was given up; `why` alone is set
  bool abandoned = false;  // it was given up
  DeviceError why{};
  const MatmulCall* product = nullptr;  // a sampled product; null: a router's call, below
  RoutingCall call;  // views of the record; null pointers where the rows were left out
  const RoutingPlan* plan = nullptr;
  const RoutingRaw* raw = nullptr;
};

class DeviceRing {
 public:
  // Allocates everything but the workspaces. Null, and *error: the device's own words, or why its
  // memory cannot be had. `table` is borrowed for ever.
  static std::unique_ptr<DeviceRing> Open(const DeviceTable* table, int ordinal,
                                          const DeviceLimits& limits, DeviceError* error);

  // Frees what the device cannot write to any more. May wait for the device's other work.
  ~DeviceRing();
  DeviceRing(const DeviceRing&) = delete;
  DeviceRing& operator=(const DeviceRing&) = delete;

  // Trainer's threads, any number at once. `call` has passed CheckRoutingCall and lies on this
  // device; its tensors must live until the stream has passed. *error is set for kNotLoaded,
  // kRefused and kFailed. *prepared is set when this call had to allocate.
  DeviceOutcome Observe(const RoutingCall& call, void* stream, const DeviceTag& tag, bool* prepared,
                        DeviceError* error);
  // The same of a checked and completed product, `plan` its PlanSample.
  DeviceOutcome Observe(const MatmulCall& call, const ProductPlan& plan, void* stream,
                        const DeviceTag& tag, DeviceError* error);

  // The drain thread. False: nothing is there, or the oldest is still under way. What comes out is
  // what was taken.
  bool Front(DeviceItem* item);
  void Pop();

  // Any thread. From now on the device is not asked for anything: what is in the ring comes out
  // unmeasured, and what the device may still write to is never freed.
  void Abandon(const char* why);

  bool empty() const { return ring_.empty(); }
  bool crowded() const { return ring_.used() > ring_.capacity() / 4; }
  // As ByteRing's: what was taken before lies before.
  uint64_t position() const { return ring_.position(); }
  bool passed(uint64_t position) const { return ring_.passed(position); }
  bool failed() const { return broken_.load(std::memory_order_acquire) != Broken::kNo; }

 private:
  struct Workspace {
    std::atomic<bool> held{false};    // by a thread that is launching
    std::atomic<uint64_t> stream{0};  // whose calls are in flight
    std::atomic<uint32_t> in_flight{0};
    void* memory = nullptr;
  };
  // Of calls of up to `experts` experts.
  struct Width {
    std::atomic<int> state{0};  // Making
    int experts = 0;
    uint64_t bytes = 0;
    std::array<Workspace, kDeviceStreams> workspaces;
    DeviceError error{};  // of a failed Prepare
  };
  // The beginning of a record; a call's slot follows. Pinned memory: the device writes `raw`.
  struct Record {
    DeviceTag tag;
    RoutingPlan plan;
    uint32_t event = 0;
    Workspace* workspace = nullptr;  // null: a product's, which needs none
    bool launched = false;
    bool product = false;  // a ProductSlot follows
    alignas(64) RoutingRaw raw;
  };
  // A product's call, its texts, and after it what was gathered.
  struct ProductSlot {
    MatmulCall call;
    char input_format[16];
    char library[257];
  };
  struct Claim;
  enum Making : int { kAbsent, kUnderWay, kReady, kUnusable };
  enum class Broken : int { kNo, kBeingTold, kRefusing, kGone };

  DeviceRing(const DeviceTable* table, void* device, const DeviceLimits& limits, std::byte* pages,
             uint64_t bytes, std::byte* alias);
  static size_t RecordBytes();
  static size_t ProductSlotBytes();

  DeviceOutcome Enqueue(const RoutingCall& call, const RoutingPlan& plan, void* stream,
                        const DeviceTag& tag, Claim* claim, DeviceError* error);
  DeviceOutcome CheckStream(void* stream, uint64_t* id, DeviceError* error);
  bool Seal(Record* record, DeviceStatus launched, void* stream, DeviceError* error);
  static std::byte* PutProduct(const MatmulCall& call, const ProductPlan& plan, Record* record);
  DeviceOutcome Prepare(Width* width, DeviceError* error);
  Width* WidthFor(int experts);
  static Workspace* Hold(Width* width, uint64_t stream);
  bool TakeEvent(uint32_t* event);
  DeviceStatus Launch(const RoutingCall& call, const SlotOffsets& offsets, Record* record,
                      uint64_t workspace_bytes, void* stream, DeviceError* error);
  void Break(Broken how, const DeviceError& error);
  DeviceOutcome Failure(DeviceError* error) const;
  std::byte* Alias(const std::byte* p) const { return alias_ + (p - pages_); }
  const Record* FrontRecord();
  DeviceStatus Passed(const Record& record);

  const DeviceTable* const table_;
  void* const device_;
  const DeviceLimits limits_;
  std::byte* const pages_;
  const uint64_t bytes_;
  std::byte* const alias_;  // of pages_, on the device
  ByteRing ring_;
  std::array<Width, 4> widths_;
  std::unique_ptr<void*[]> events_;
  std::unique_ptr<std::atomic<bool>[]> event_taken_;
  std::atomic<uint32_t> next_event_{0};
  std::atomic<Broken> broken_{Broken::kNo};
  std::atomic<bool> abandoned_{false};
  DeviceError failure_{};  // set before broken_ becomes kRefusing or kGone
};

}  // namespace plumbline::probes
