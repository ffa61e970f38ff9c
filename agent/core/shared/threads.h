// Threads that live in someone else's process.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"

namespace plumbline::agent {

// Blocks signals in this thread while it lives, so that a thread made meanwhile never runs the
// trainer's handlers: all but those a faulting instruction raises (SIGSEGV, SIGBUS, SIGILL, SIGFPE,
// SIGTRAP), which, blocked, would kill the process without its crash handler being asked.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// A thread that can be waited for with a deadline and is never joined, so that nothing hangs on it.
// It runs as SCHED_BATCH.
// What `body` needs must be owned by `body`.
class DetachedThread {
 public:
  using Clock = std::chrono::steady_clock;

  DetachedThread() = default;

  // False when the system has no thread to give. `name` is cut to 15 characters.
  bool Start(const std::string& name, std::function<void()> body);

  // CPU time that the thread has used; 0 when it was never started, or has ended.
  uint64_t CpuNs() const;

  // True when the thread has ended, or was never started.
  bool WaitEnded(Clock::time_point deadline) const;

 private:
  struct End {
    Mutex mutex;
    CondVar changed;
    bool ended PLUMB_GUARDED_BY(mutex) = false;
    bool running PLUMB_GUARDED_BY(mutex) = false;  // cpu_clock may be read
    clockid_t cpu_clock PLUMB_GUARDED_BY(mutex){};
  };
  std::shared_ptr<End> end_;
};

}  // namespace plumbline::agent
