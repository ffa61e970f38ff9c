// A run's batch of calls: between its begin and its end, tensors and updates that one thread
// observes on a device wait, and are launched together.
//
// One thread has the batch at a time; calls of other threads are launched at once. Waiting calls
// must be launched before the thread's end() returns. If end() is never called, the step's end
// counts them as lost: by then the trainer may have overwritten the tensors, and their figures
// would produce a false finding.
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

  // Begins the batch for the calling thread, or nests it. Returns false if another thread has it.
  bool Begin();
  // Launches the waiting calls. The outermost end releases the batch. Does nothing if the batch
  // does not belong to the calling thread.
  void End();
  // Returns true if the calling thread has the batch.
  bool mine() const { return owner_.load(std::memory_order_relaxed) == Self(); }

  // Adds a call. Returns false if the batch does not belong to the calling thread (any more).
  template <typename Call>
  bool Observe(const Call& call, const probes::MeasureOptions& options, void* stream,
               const probes::DeviceTag& tag, probes::DeviceReply* reply) {
    const MutexLock lock(mutex_);
    if (!mine()) return false;
    state_->devices->Observe(call, options, stream, tag, &waiting_, reply);
    return true;
  }

  // Thread-safe. Launch launches the waiting calls. Close counts them as lost and releases the
  // batch.
  void Launch();
  void Close();

 private:
  static uintptr_t Self();
  void LaunchLocked() PLUMB_REQUIRES(mutex_);
  void Lost(const probes::DeviceTag& tag, probes::DeviceOutcome outcome, const DeviceError& error);

  RunState* const state_;
  std::atomic<uintptr_t> owner_{0};  // the owning thread; written with the mutex
  Mutex mutex_;                      // contended only if another thread closes the batch
  uint32_t depth_ PLUMB_GUARDED_BY(mutex_) = 0;
  probes::DeviceBatch waiting_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::agent
