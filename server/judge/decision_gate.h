// Admits decisions until the server stops, and counts those that are neither written nor refused.
#pragma once

#include <chrono>
#include <cstddef>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe.
class DecisionGate {
 public:
  // Counts a decision. Returns false if the gate is closed. Each true is followed by Decided.
  bool Enter() {
    const MutexLock lock(mutex_);
    decisions_ += open_ ? 1 : 0;
    return open_;
  }
  // Counts a decision that the server made earlier, even if the gate was closed meanwhile.
  void EnterAnyway() {
    const MutexLock lock(mutex_);
    ++decisions_;
  }
  void Decided() {
    const MutexLock lock(mutex_);
    if (--decisions_ == 0) changed_.NotifyAll();
  }
  bool open() const {
    const MutexLock lock(mutex_);
    return open_;
  }
  // Closes the gate, and waits at most `wait` for the decisions that were admitted.
  void Close(std::chrono::nanoseconds wait) {
    MutexLock lock(mutex_);
    open_ = false;
    changed_.WaitFor(lock, wait, [this]() PLUMB_REQUIRES(mutex_) { return decisions_ == 0; });
  }

 private:
  mutable Mutex mutex_;  // guards what follows
  CondVar changed_;
  size_t decisions_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool open_ PLUMB_GUARDED_BY(mutex_) = true;
};

}  // namespace plumbline::server
