// The devices of one run's tensors: each gets a ring (device/ring.h) with its first tensor, and the
// device library is loaded with the first of all.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "probes/device/job_batch.h"
#include "probes/device/ring.h"

namespace plumbline::probes {

inline constexpr int kMaxDevices = 32;  // ordinals of one process

// The outcome of a call, with the reason.
struct DeviceReply {
  DeviceOutcome outcome = DeviceOutcome::kTaken;
  bool prepared = false;  // this call prepared a device, so it took longer than later calls will
  bool crowded = false;   // the ring is more than a quarter full
  DeviceError error{};    // set for kNotLoaded, kRefused and kFailed
};

// Calls that wait for a common launch, one launch per stream. One thread at a time; its memory is
// reused.
struct DeviceBatch {
  // Called with the outcome of a call that was not taken, or only in part.
  std::function<void(const DeviceTag&, DeviceOutcome, const DeviceError&)> lost;
  std::vector<JobGroup<TensorJob>> tensors;  // one per stream
  std::vector<JobGroup<UpdateJob>> updates;

  bool empty() const;
};

class DeviceProbe {
 public:
  using Clock = std::chrono::steady_clock;
  // Returns the table, always the same, or null with the reason. Called when a device is first
  // seen.
  using Loader = std::function<const DeviceTable*(DeviceError*)>;
  // The position of each ring at some moment.
  using Mark = std::array<uint64_t, kMaxDevices>;

  // `ready` (may be empty) is called on the caller's thread after a device was opened.
  DeviceProbe(Loader loader, const DeviceLimits& limits, std::function<void()> ready);

  // Called by the trainer's threads. `call` has passed CheckRoutingCall and is on a device;
  // otherwise as DeviceRing::Observe.
  void Observe(const RoutingCall& call, void* stream, const DeviceTag& tag, DeviceReply* reply);
  // Observes a checked and completed product with its PlanSample.
  void Observe(const MatmulCall& call, const ProductPlan& plan, void* stream, const DeviceTag& tag,
               DeviceReply* reply);

  // Observes a tensor, or an update of whole tensors, that passed CheckCall and is on a device.
  void Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceReply* reply);
  void Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceReply* reply);

  // Does the same, but the call waits in the batch, for Launch or for a full launch. Its tensors
  // must exist and stay unchanged until then. kTaken: it waits, or was launched.
  void Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceBatch* batch, DeviceReply* reply);
  void Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceBatch* batch, DeviceReply* reply);
  // Launches all waiting calls. Returns true if a ring is more than a quarter full.
  bool Launch(DeviceBatch* batch);

  // Observes a call that is measured on the host, of tensors on device `ordinal`.
  void Observe(const CarriedCall& call, int ordinal, void* stream, const DeviceTag& tag,
               DeviceReply* reply);

  // Functions for graphs. Capture calls the ring's function of the same name on the call's device;
  // BeginStep and EndStep, of the stepping thread, call those of all devices. *reply is that of the
  // device with the worst outcome. BeginStep returns true if a captured call is due.
  template <typename Call>
  void Capture(const Call& call, int ordinal, void* stream, void* replays_on, void* site,
               DeviceReply* reply);
  bool BeginStep(int64_t step, GraphOwner* owner, DeviceReply* reply);
  void EndStep(DeviceReply* reply);

  // Called by the drain thread. Passes on the finished work of the devices: f(const DeviceItem&),
  // for each device in the order of its calls.
  template <typename F>
  void Drain(F f) {
    const MutexLock lock(draining_);
    for (const Place& place : places_) {
      DeviceRing* ring = place.ready.load(std::memory_order_acquire);
      if (ring == nullptr) continue;
      DeviceItem item;
      for (; ring->Front(&item); ring->Pop()) f(static_cast<const DeviceItem&>(item));
    }
  }

  bool used() const;  // true if any device was opened
  bool empty() const;
  Mark Position() const;
  bool Passed(const Mark& mark) const;

  // Stops waiting for work in progress: the next Drain passes it on unmeasured. Thread-safe.
  void Abandon(const char* why);

  // Called when the process is about to end, and the device's library before us: lets the drain
  // thread empty the rings until the deadline, and ensures that no device is called after the
  // return.
  void Leave(Clock::time_point deadline);

  // Frees memory that the devices no longer use; may wait for their other work. No other call may
  // be in progress or follow.
  void Free();

 private:
  enum Opening : int { kClosed, kUnderWay, kOpen, kUnusable };
  struct Place {
    std::atomic<int> state{kClosed};
    std::atomic<DeviceRing*> ready{nullptr};
    std::unique_ptr<DeviceRing> ring;
    DeviceError error{};  // why it cannot be used
  };
  DeviceRing* RingOf(int ordinal, DeviceReply* reply);
  template <typename F>
  void ForGraphs(DeviceReply* reply, F f);
  // Returns false if `late` is false and there is work to wait for.
  bool LeaveRings(bool late) PLUMB_REQUIRES(draining_);
  void EndOpenSteps() PLUMB_REQUIRES(draining_);
  template <typename Call>
  void ObserveOn(int ordinal, const Call& call, const MeasureOptions& options, void* stream,
                 const DeviceTag& tag, DeviceReply* reply);
  template <typename Job, typename Call>
  void Gather(int ordinal, const Call& call, const MeasureOptions& options, void* stream,
              const DeviceTag& tag, std::vector<JobGroup<Job>>* groups, DeviceBatch* batch,
              DeviceReply* reply);
  template <typename Job>
  bool LaunchGroup(const DeviceBatch& batch, JobGroup<Job>* group);

  const Loader loader_;
  const DeviceLimits limits_;
  const std::function<void()> ready_;
  std::array<Place, kMaxDevices> places_;
  std::atomic<bool> leaving_{false};
  Mutex draining_;  // held by the drain thread, and by the thread that ends the process
};

}  // namespace plumbline::probes
