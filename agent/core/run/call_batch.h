// A run's batch: between its begin and its end, tensors and updates that one thread observes on a
// device wait there, and leave in as few launches as they fit into.
//
// One thread has it at a time; a call of any other thread is launched at once, as ever. What waits
// must leave before the thread's end() returns. Where that never comes, the step's end gives it up
// as lost: by then the trainer may have written the tensors anew, and a figure of that would accuse
// a healthy run.
#pragma once

#include <atomic>
#include <cstdint>

#include "agent/core/run/run_state.h"
#include "base/mutex.h"
#include "probes/device/probe.h"

namespace plumbline::agent {

class CallBatch {
 public:
  explicit CallBatch(RunState* state);  // borrowed
  CallBatch(const CallBatch&) = delete;
  CallBatch& operator=(const CallBatch&) = delete;

  // The thread's own, again if it has it. False: another thread has it.
  bool Begin();
  // Launches what waits; the outermost end gives the batch up. Nothing where it is not the
  // thread's.
  void End();
  // Has the calling thread begun it?
  bool mine() const { return owner_.load(std::memory_order_relaxed) == Self(); }

  // False: the batch is not the thread's (any more).
  template <typename Call>
  bool Observe(const Call& call, const probes::MeasureOptions& options, void* stream,
               const probes::DeviceTag& tag, probes::DeviceReply* reply) {
    const MutexLock lock(mutex_);
    if (!mine()) return false;
    state_->devices->Observe(call, options, stream, tag, &waiting_, reply);
    return true;
  }

  // Any thread. Launch: what waits leaves now. Close: what waits is lost, and nobody has the batch.
  void Launch();
  void Close();

 private:
  static uintptr_t Self();
  void LaunchLocked() PLUMB_REQUIRES(mutex_);
  void Lost(const probes::DeviceTag& tag, probes::DeviceOutcome outcome, const DeviceError& error);

  RunState* const state_;
  std::atomic<uintptr_t> owner_{0};  // a thread; written with the mutex
  Mutex mutex_;                      // nobody waits for it but who closes a batch beside its thread
  uint32_t depth_ PLUMB_GUARDED_BY(mutex_) = 0;
  probes::DeviceBatch waiting_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::agent
