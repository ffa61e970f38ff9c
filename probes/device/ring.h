// Calls in flight on one device: records of pinned memory that the device fills on the
// trainer's own streams, and that the drain thread empties in the order of the calls.
//
//   trainer's threads   Observe: reserves a record, enqueues kernels, copies and an event. No
//                       synchronisation, no lock, and no allocation but for the first router call
//                       of a width and the first tensor (see Prepare); what finds no room is
//                       refused
//   drain thread        Front/Pop: takes what the device has finished
//
// A record holds the call's description, the measurement, and on sampled steps the rows or
// elements. Kernels of calls on different streams may overlap, so each stream that has calls in
// flight has a workspace of its own, given to the next stream when they are done.
//
// Once anything fails the device is left alone: a fault is sticky in CUDA, and asking again would
// only cost the trainer time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/byte_ring.h"
#include "kernels/device/table.h"
#include "probes/calls/carried.h"
#include "probes/device/graph_calls.h"
#include "probes/device/handles.h"
#include "probes/device/item.h"
#include "probes/device/job_batch.h"
#include "probes/device/slots.h"

namespace plumbline::probes {

struct DeviceLimits {
  uint64_t ring_bytes = 32ull << 20;  // pinned, rounded up to a power of two
  uint64_t sample_max_bytes = 8ull << 20;
  uint32_t events = 1024;  // calls in flight
  uint32_t timers = 64;    // sampled calls in flight of which the GPU's time is taken
};

// Streams that may have calls in flight at once, and rows of one call.
inline constexpr int kDeviceStreams = 4;
inline constexpr int64_t kMaxDeviceTokens = int64_t{1} << 22;

class DeviceRing {
 public:
  // Allocates everything but the workspaces. Null, and *error: the device's own words, or why its
  // memory cannot be had. *later (may be null): it could be another time, since a capture stood in
  // the way. `table` is borrowed for ever.
  static std::unique_ptr<DeviceRing> Open(const DeviceTable* table, int ordinal,
                                          const DeviceLimits& limits, DeviceError* error,
                                          bool* later = nullptr);

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
  // The same of a tensor and of an update of whole tensors, whose CheckCall was OK. What is kept of
  // a sampled step, options.sampled, is within options.sample_max_bytes.
  DeviceOutcome Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
                        const DeviceTag& tag, bool* prepared, DeviceError* error);
  DeviceOutcome Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
                        const DeviceTag& tag, bool* prepared, DeviceError* error);

  // The same in two parts, for calls that leave together (device/ring_batch.cc). Plan: *job is what
  // Observe would launch; its texts are still the caller's.
  template <typename Call, typename Job>
  DeviceOutcome Plan(const Call& call, const MeasureOptions& options, void* stream, bool* prepared,
                     Job* job, DeviceError* error);
  // Launches planned jobs that keep no row, as many as a JobGroup takes, at once; where there is no
  // room for that one after the other. outcomes[i]: of jobs[i].
  template <typename Job>
  void ObserveAll(std::span<const WaitingJob<Job>> jobs, void* stream,
                  std::span<DeviceOutcome> outcomes, DeviceError* error);
  // One alone.
  template <typename Job>
  DeviceOutcome ObserveJob(const Job& planned, void* stream, const DeviceTag& tag, bool* prepared,
                           DeviceError* error);

  // The same of a call that is measured on the host. Refused: by the ring, or indices that no
  // tensor could be gathered at.
  DeviceOutcome Observe(const CarriedCall& call, void* stream, const DeviceTag& tag, bool* prepared,
                        DeviceError* error);

  // Graphs (device/ring_graph.cc). Any thread: puts a call, as above, into the graph that `stream`
  // is being captured into, whose replays will be in the order of `replays_on`, a stream that lives
  // as long as the run. Allocates.
  template <typename Call>
  DeviceOutcome Capture(const Call& call, void* stream, void* replays_on, void* site,
                        DeviceError* error);
  // The stepping thread: opens the slots of the captured calls that are due, and closes them.
  // kRingFull: nothing of them is measured in this step. kTakenWithoutRows as above.
  DeviceOutcome BeginStep(int64_t step, GraphOwner* owner, DeviceError* error);
  DeviceOutcome EndStep(DeviceError* error);
  bool has_graphs() const { return graph_.size() > 0; }
  bool step_open() const { return open_.load(std::memory_order_relaxed) != nullptr; }

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
  // What an open step's graphs will leave lies behind: it cannot come out before the step's end.
  uint64_t position() const {
    const uint64_t reserved = ring_.position();  // first: a record in it has its mark set
    return std::min(reserved, open_at_.load(std::memory_order_acquire));
  }
  bool passed(uint64_t position) const { return ring_.passed(position); }
  bool failed() const { return broken_.load(std::memory_order_acquire) != Broken::kNo; }

 private:
  struct Workspace {
    std::atomic<bool> held{false};    // by a thread that is launching
    std::atomic<uint64_t> stream{0};  // whose calls are in flight
    std::atomic<uint32_t> in_flight{0};
    void* memory = nullptr;
  };
  // Of router calls of up to `experts` experts, or of jobs.
  struct Width {
    std::atomic<int> state{0};  // Making
    int experts = 0;            // 0: of jobs
    uint64_t bytes = 0;
    std::array<Workspace, kDeviceStreams> workspaces;
    DeviceError error{};  // of a failed Prepare
  };
  // What follows a record's head: RoutingSlot, ProductSlot, TensorJob, UpdateJob, a CarriedCall's
  // body, GraphRecord, a JobBatch of tensors or of updates.
  enum class Kind : uint8_t {
    kRouting,
    kProduct,
    kTensor,
    kUpdate,
    kCarried,
    kGraph,
    kTensors,
    kUpdates
  };
  // Of one call, or of several?
  static bool IsOfMany(Kind kind) { return kind >= Kind::kGraph; }
  static constexpr uint32_t kNoTimer = ~uint32_t{0};
  struct Record {
    DeviceTag tag;
    Kind kind = Kind::kRouting;
    bool launched = false;
    uint32_t event = 0;
    Workspace* workspace = nullptr;  // null: none is needed
    uint32_t timer = kNoTimer;
    bool timed = false;      // both of its marks were enqueued
    uint32_t gathered = 0;   // of a carried call: pieces that are not in its body yet
    uint64_t pieces_at = 0;  // CarriedPiece's, from the body's begin
  };
  struct CarriedPiece {
    uint64_t from, to, bytes;  // both places from the body's begin
  };
  // What a call holds until its record is committed.
  struct Claim {
    ~Claim();
    Workspace* workspace = nullptr;
    uint64_t workspace_bytes = 0;
    uint32_t event = 0;
    Handles* events = nullptr;  // that it was taken of
    bool committed = false;
  };
  enum Making : int { kAbsent, kUnderWay, kReady, kUnusable };
  enum class Broken : int { kNo, kBeingTold, kRefusing, kGone };

  DeviceRing(const DeviceTable* table, void* device, const DeviceLimits& limits, std::byte* pages,
             uint64_t bytes, std::byte* alias);
  static std::byte* Body(Record* record) {
    return reinterpret_cast<std::byte*>(record) + PartBytes<Record>();
  }

  // All calls: stream, workspace and event first, then a record, then launches, then the seal.
  DeviceOutcome Acquire(Width* width, void* stream, Claim* claim, bool* prepared,
                        DeviceError* error);
  DeviceOutcome CheckStream(void* stream, uint64_t* id, DeviceError* error);
  DeviceOutcome Prepare(Width* width, DeviceError* error);
  Width* WidthFor(int experts);
  Width* WidthOfJobs() { return &widths_.back(); }
  static Workspace* Hold(Width* width, uint64_t stream);
  std::byte* Reserve(size_t body_bytes) { return ring_.Reserve(PartBytes<Record>() + body_bytes); }
  Record* Begin(std::byte* memory, Kind kind, const DeviceTag& tag, Claim* claim, void* stream);
  bool Seal(Record* record, DeviceStatus launched, void* stream, DeviceError* error);

  // Each kind's: device/ring_calls.cc.
  DeviceOutcome Enqueue(const RoutingCall& call, const RoutingPlan& plan, void* stream,
                        const DeviceTag& tag, Claim* claim, DeviceError* error);
  DeviceStatus Launch(const RoutingCall& call, const SlotOffsets& offsets, RoutingSlot* slot,
                      const Claim& claim, void* stream, DeviceError* error);
  template <typename Job, typename Call>
  DeviceOutcome ObserveCall(const Call& call, const MeasureOptions& options, void* stream,
                            const DeviceTag& tag, bool* prepared, DeviceError* error);
  template <typename Job>
  DeviceBatchCall CallOf() const;
  DeviceStatus Launch(const DeviceJob& job, DeviceBatchCall figures, const Claim& claim,
                      void* stream, DeviceError* error);
  // device/ring_batch.cc
  template <typename Job>
  DeviceOutcome ObserveTogether(std::span<const WaitingJob<Job>> jobs, void* stream,
                                DeviceError* error);
  DeviceStatus Launch(const JobBatch& batch, std::byte* body, DeviceBatchCall figures,
                      const Claim& claim, void* stream, DeviceError* error);
  bool ShowNext(const Record& record, bool measured, DeviceItem* item);
  // The batch of its gathers lies `batch_at` bytes from the body's begin.
  DeviceStatus Launch(const CarriedCall& call, const BatchShape& batch, Record* record,
                      uint64_t batch_at, void* stream, DeviceError* error);

  // device/ring_graph.cc. Of the record at the front: its next replay; false: there is none left.
  std::byte* ReserveGraph(uint32_t* replays, bool* elements);
  DeviceOutcome OpenStep(int64_t step, GraphOwner* owner, DeviceError* error);
  bool ShowReplay(const Record& record, bool measured, DeviceItem* item);
  void Unmeasured(DeviceItem* item) const;
  void PopRecord();

  void Break(Broken how, const DeviceError& error);
  DeviceOutcome Failure(DeviceError* error) const;
  std::byte* Alias(const std::byte* p) const { return alias_ + (p - pages_); }
  Record* FrontRecord();
  static void Show(Record* record, DeviceItem* item);
  uint64_t GpuTime(const Record& record);
  DeviceStatus Passed(const Record& record);

  const DeviceTable* const table_;
  void* const device_;
  const DeviceLimits limits_;
  std::byte* const pages_;
  const uint64_t bytes_;
  std::byte* const alias_;  // of pages_, on the device
  ByteRing ring_;
  std::array<Width, 5> widths_;  // by experts; the last is of jobs
  Handles events_;
  Handles timers_;
  std::atomic<Broken> broken_{Broken::kNo};
  std::atomic<bool> abandoned_{false};
  GraphCalls graph_;
  std::atomic<uint32_t> most_replays_{0};  // of a captured call in a step so far
  static constexpr uint64_t kNothingOpen = ~uint64_t{0};
  std::atomic<uint64_t> open_at_{kNothingOpen};  // not behind the open step's record
  std::atomic<Record*> open_{nullptr};           // of the open step
  void* open_on_ = nullptr;                      // set before it
  struct {                                       // the drain thread's: within a record of many
    bool begun = false;
    bool told = false;  // that the entry is not measured
    uint32_t entry = 0;
    uint32_t replay = 0;  // of a batch: the job's number
  } at_;
  DeviceError failure_{};  // set before broken_ becomes kRefusing or kGone
};

}  // namespace plumbline::probes
