// The devices that one run's tensors lie on: each gets a ring (device/ring.h) when its first tensor
// comes, and the device library is loaded with the first of all.
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

// What became of a call, and why.
struct DeviceReply {
  DeviceOutcome outcome = DeviceOutcome::kTaken;
  bool prepared = false;  // this call got a device ready: it took longer than others will
  bool crowded = false;   // the ring is more than a quarter full
  DeviceError error{};    // set for kNotLoaded, kRefused and kFailed
};

// Calls that wait to leave together, those of one stream in one launch. One thread at a time; its
// memory stays from use to use.
struct DeviceBatch {
  // What became of a call that was not taken, or not whole.
  std::function<void(const DeviceTag&, DeviceOutcome, const DeviceError&)> lost;
  std::vector<JobGroup<TensorJob>> tensors;  // one a stream
  std::vector<JobGroup<UpdateJob>> updates;

  bool empty() const;
};

class DeviceProbe {
 public:
  using Clock = std::chrono::steady_clock;
  // The table, the same each time, or null and why. Called when a device is first seen.
  using Loader = std::function<const DeviceTable*(DeviceError*)>;
  // Where each ring stood at some moment.
  using Mark = std::array<uint64_t, kMaxDevices>;

  // `ready` (may be empty) is called on the caller's thread after a device was opened.
  DeviceProbe(Loader loader, const DeviceLimits& limits, std::function<void()> ready);

  // Trainer's threads. `call` has passed CheckRoutingCall and lies on a device; otherwise as
  // DeviceRing::Observe.
  void Observe(const RoutingCall& call, void* stream, const DeviceTag& tag, DeviceReply* reply);
  // A checked and completed product with its PlanSample.
  void Observe(const MatmulCall& call, const ProductPlan& plan, void* stream, const DeviceTag& tag,
               DeviceReply* reply);

  // A tensor, or an update of whole tensors, whose CheckCall was OK and which lies on a device.
  void Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceReply* reply);
  void Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceReply* reply);

  // The same, but the call waits in the batch, for Launch or for as many as a launch takes. Its
  // tensors must live and stay as they are until then. kTaken: it waits, or was launched.
  void Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceBatch* batch, DeviceReply* reply);
  void Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
               const DeviceTag& tag, DeviceBatch* batch, DeviceReply* reply);
  // Launches all that waits. True: a ring is more than a quarter full.
  bool Launch(DeviceBatch* batch);

  // A call that is measured on the host, of tensors on device `ordinal`.
  void Observe(const CarriedCall& call, int ordinal, void* stream, const DeviceTag& tag,
               DeviceReply* reply);

  // Graphs, as the ring's functions of that name, on the call's device; the stepping thread's on
  // all. *reply: of the device that fared worst. BeginStep: true when a captured call is due.
  template <typename Call>
  void Capture(const Call& call, int ordinal, void* stream, void* replays_on, void* site,
               DeviceReply* reply);
  bool BeginStep(int64_t step, GraphOwner* owner, DeviceReply* reply);
  void EndStep(DeviceReply* reply);

  // The drain thread. Hands on what the devices have finished: f(const DeviceItem&), of each device
  // in the order of its calls.
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

  bool used() const;  // has any device been opened?
  bool empty() const;
  Mark Position() const;
  bool Passed(const Mark& mark) const;

  // What is under way will not be waited for: the next Drain hands it on unmeasured. Any thread.
  void Abandon(const char* why);

  // The process is about to end, and the device's library before us: gives the drain thread until
  // the deadline to empty the rings, and sees to it that no device is asked after the return.
  void Leave(Clock::time_point deadline);

  // Frees what the devices do not use any more; may wait for their other work. No other call may be
  // under way or follow.
  void Free();

 private:
  enum Opening : int { kClosed, kUnderWay, kOpen, kUnusable };
  struct Place {
    std::atomic<int> state{kClosed};
    std::atomic<DeviceRing*> ready{nullptr};
    std::unique_ptr<DeviceRing> ring;
    DeviceError error{};  // why it is unusable
  };
  DeviceRing* RingOf(int ordinal, DeviceReply* reply);
  template <typename F>
  void ForGraphs(DeviceReply* reply, F f);
  // False: not late, and there is work to be waited for.
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
  Mutex draining_;  // the drain thread's, and of who ends the process
};

}  // namespace plumbline::probes
