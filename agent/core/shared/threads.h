// Threads in the trainer's process.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"

namespace plumbline::agent {

// Blocks signals in this thread during its lifetime, so that a thread created meanwhile never runs
// the trainer's handlers. Excepted are the signals of a faulting instruction (SIGSEGV, SIGBUS,
// SIGILL, SIGFPE, SIGTRAP): if blocked, they would kill the process without its crash handler.
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

// A thread that can be waited for with a deadline and is never joined, so that nothing blocks on
// it. It runs as SCHED_BATCH. `body` must own everything that it needs.
class DetachedThread {
 public:
  using Clock = std::chrono::steady_clock;

  DetachedThread() = default;

  // Starts the thread. Returns false if the system refuses. `name` is cut to 15 characters.
  bool Start(const std::string& name, std::function<void()> body);

  // Returns the CPU time that the thread has used; 0 if it was never started or has ended.
  uint64_t CpuNs() const;

  // Returns true if the thread has ended, or was never started.
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
