// Calls in flight on one device: records of pinned memory that the device fills on the trainer's
// own streams, and that the drain thread empties in the order of the calls.
//
//   trainer's threads   Observe: reserves a record, enqueues kernels, copies and an event. No
//                       synchronisation, no lock, and no allocation except for the first router
//                       call of a width and the first tensor (see Prepare); a call without space
//                       is refused
//   drain thread        Front/Pop: takes the finished work of the device
//
// A record holds the call's description, the measurement, and on sampled steps the rows or
// elements. Kernels of calls on different streams may overlap, so each stream with calls in flight
// has a separate workspace, which the next stream gets when they are done.
//
// After the first failure the device is left alone: a fault is sticky in CUDA, and further calls
// would only cost the trainer time.
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
#include "probes/device/item.h"
#include "probes/device/job_batch.h"
#include "probes/device/slots.h"

namespace plumbline::probes {

struct DeviceLimits {
  uint64_t ring_bytes = 32ull << 20;  // pinned, rounded up to a power of two
  uint64_t sample_max_bytes = 8ull << 20;
  uint32_t events = 1024;  // calls in flight
  uint32_t timers = 64;    // sampled calls in flight whose GPU time is measured
};

// The number of streams that may have calls in flight at once, and the largest number of rows of
// one call.
inline constexpr int kDeviceStreams = 4;
inline constexpr int64_t kMaxDeviceTokens = int64_t{1} << 22;

// Handles of the device, events or timers, taken and returned by number. Thread-safe, without a
// lock.
class Handles {
 public:
  explicit Handles(uint32_t count)
      : count_(count),
        handles_(std::make_unique<void*[]>(count)),
        taken_(std::make_unique<std::atomic<bool>[]>(count)) {}

  uint32_t count() const { return count_; }
  void*& at(uint32_t i) { return handles_[i]; }

  // Takes a handle; returns false if all are taken.
  bool Take(uint32_t* i) {
    for (uint32_t tries = 0; tries < count_; ++tries) {
      *i = next_.fetch_add(1, std::memory_order_relaxed) % count_;
      if (!taken_[*i].exchange(true, std::memory_order_acquire)) return true;
    }
    return false;
  }
  void Give(uint32_t i) { taken_[i].store(false, std::memory_order_release); }

 private:
  const uint32_t count_;
  std::unique_ptr<void*[]> handles_;
  std::unique_ptr<std::atomic<bool>[]> taken_;
  std::atomic<uint32_t> next_{0};
};

class DeviceRing {
 public:
  // Allocates everything except the workspaces. Returns null and sets *error to the device's
  // message, or to why its memory is not available. Sets *later (may be null) if it may succeed
  // later, since a capture prevented it. `table` must exist forever.
  static std::unique_ptr<DeviceRing> Open(const DeviceTable* table, int ordinal,
                                          const DeviceLimits& limits, DeviceError* error,
                                          bool* later = nullptr);

  // Frees memory that the device can no longer write. May wait for the device's other work.
  ~DeviceRing();
  DeviceRing(const DeviceRing&) = delete;
  DeviceRing& operator=(const DeviceRing&) = delete;

  // Called by the trainer's threads, any number at once. `call` has passed CheckRoutingCall and is
  // on this device; its tensors must exist until the stream has passed. *error is set for
  // kNotLoaded, kRefused and kFailed. *prepared is set if this call had to allocate.
  DeviceOutcome Observe(const RoutingCall& call, void* stream, const DeviceTag& tag, bool* prepared,
                        DeviceError* error);
  // Observes a checked and completed product; `plan` is its PlanSample.
  DeviceOutcome Observe(const MatmulCall& call, const ProductPlan& plan, void* stream,
                        const DeviceTag& tag, DeviceError* error);
  // Observes a tensor, or an update of whole tensors, that passed CheckCall. A sampled step
  // (options.sampled) keeps at most options.sample_max_bytes of data.
  DeviceOutcome Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
                        const DeviceTag& tag, bool* prepared, DeviceError* error);
  DeviceOutcome Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
                        const DeviceTag& tag, bool* prepared, DeviceError* error);

  // Does the same in two parts, for calls that share a launch (device/ring_batch.cc). Plan sets
  // *job to what Observe would launch; the caller still owns its texts.
  template <typename Call, typename Job>
  DeviceOutcome Plan(const Call& call, const MeasureOptions& options, void* stream, bool* prepared,
                     Job* job, DeviceError* error);
  // Launches planned jobs without rows, at most as many as a JobGroup holds, at once; if there is
  // no space, one after another. outcomes[i] belongs to jobs[i].
  template <typename Job>
  void ObserveAll(std::span<const WaitingJob<Job>> jobs, void* stream,
                  std::span<DeviceOutcome> outcomes, DeviceError* error);
  // Launches a single job.
  template <typename Job>
  DeviceOutcome ObserveJob(const Job& planned, void* stream, const DeviceTag& tag, bool* prepared,
                           DeviceError* error);

  // Observes a call that is measured on the host. Returns kRefused if the ring refuses it, or if no
  // tensor could be gathered at the indices.
  DeviceOutcome Observe(const CarriedCall& call, void* stream, const DeviceTag& tag, bool* prepared,
                        DeviceError* error);

  // Graphs (device/ring_graph.cc). Adds a call, as above, to the graph that `stream` is being
  // captured into. Its replays will be in the order of `replays_on`, a stream that exists as long
  // as the run. Allocates. Thread-safe.
  template <typename Call>
  DeviceOutcome Capture(const Call& call, void* stream, void* replays_on, void* site,
                        DeviceError* error);
  // Called by the stepping thread: opens the slots of the captured calls that are due, and closes
  // them. kRingFull: none of them is measured in this step. kTakenWithoutRows as above.
  DeviceOutcome BeginStep(int64_t step, GraphOwner* owner, DeviceError* error);
  DeviceOutcome EndStep(DeviceError* error);
  bool has_graphs() const { return graph_.size() > 0; }
  bool step_open() const { return open_.load(std::memory_order_relaxed) != nullptr; }

  // Called by the drain thread. Front returns false if the ring is empty or the oldest call is in
  // progress. Items come out in the order of the calls.
  bool Front(DeviceItem* item);
  void Pop();

  // From now on makes no calls of the device: the contents of the ring come out unmeasured, and
  // memory that the device may still write is never freed. Thread-safe.
  void Abandon(const char* why);

  bool empty() const { return ring_.empty(); }
  bool crowded() const { return ring_.used() > ring_.capacity() / 4; }
  // Like ByteRing's: everything that was taken earlier is before this position. Graphs of an open
  // step leave their results after it, because these cannot come out before the step's end.
  uint64_t position() const {
    const uint64_t reserved = ring_.position();  // read first: a record in it has its mark set
    return std::min(reserved, open_at_.load(std::memory_order_acquire));
  }
  bool passed(uint64_t position) const { return ring_.passed(position); }
  bool failed() const { return broken_.load(std::memory_order_acquire) != Broken::kNo; }

 private:
  struct Workspace {
    std::atomic<bool> held{false};    // by a thread that is launching
    std::atomic<uint64_t> stream{0};  // the stream whose calls are in flight
    std::atomic<uint32_t> in_flight{0};
    void* memory = nullptr;
  };
  // For router calls of up to `experts` experts, or for jobs.
  struct Width {
    std::atomic<int> state{0};  // Making
    int experts = 0;            // 0: for jobs
    uint64_t bytes = 0;
    std::array<Workspace, kDeviceStreams> workspaces;
    DeviceError error{};  // of a failed Prepare
  };
  // The data after a record's head: RoutingSlot, ProductSlot, TensorJob, UpdateJob, a CarriedCall's
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
  // Returns true for records of several calls.
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
  // Resources that a call holds until its record is committed.
  struct Claim {
    ~Claim();
    Workspace* workspace = nullptr;
    uint64_t workspace_bytes = 0;
    uint32_t event = 0;
    Handles* events = nullptr;  // the set from which it was taken
    bool committed = false;
  };
  enum Making : int { kAbsent, kUnderWay, kReady, kUnusable };
  enum class Broken : int { kNo, kBeingReported, kRefusing, kGone };

  DeviceRing(const DeviceTable* table, void* device, const DeviceLimits& limits, std::byte* pages,
             uint64_t bytes, std::byte* alias);
  static std::byte* Body(Record* record) {
    return reinterpret_cast<std::byte*>(record) + PartBytes<Record>();
  }

  // For all calls: first stream, workspace and event, then a record, then launches, then the seal.
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

  // One function per kind of call: device/ring_calls.cc.
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
  // The batch of its gathers is `batch_at` bytes from the body's begin.
  DeviceStatus Launch(const CarriedCall& call, const BatchShape& batch, Record* record,
                      uint64_t batch_at, void* stream, DeviceError* error);

  // See device/ring_graph.cc. Shows the next replay of the record at the front; returns false if
  // there is none.
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
  std::atomic<uint32_t> most_replays_{0};  // replays of a captured call in a step so far
  static constexpr uint64_t kNothingOpen = ~uint64_t{0};
  std::atomic<uint64_t> open_at_{kNothingOpen};  // not after the open step's record
  std::atomic<Record*> open_{nullptr};           // of the open step
  void* open_on_ = nullptr;                      // set before open_
  struct {  // used by the drain thread: position within a record of several calls
    bool begun = false;
    bool reported = false;  // true if the loss of the entry was reported
    uint32_t entry = 0;
    uint32_t replay = 0;  // of a batch: the job's number
  } at_;
  DeviceError failure_{};  // set before broken_ becomes kRefusing or kGone
};

}  // namespace plumbline::probes
