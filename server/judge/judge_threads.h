// The judging threads: starts them, lets one take over from a slow one, and measures their work.
//
// One thread at a time holds the turn and may use what the threads share. Each thread has a Worker
// with its current work, which callbacks look up (Mine).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <list>
#include <vector>

#include "base/mutex.h"
#include "base/task_timer.h"
#include "plumbline/v1/query.pb.h"
#include "server/judge/turn_lock.h"

namespace plumbline::server {

class JudgeThreads {
 public:
  struct Worker {
    uint64_t entry = 0;  // to which closed steps belong
    int64_t unix_ns = 0;
    std::vector<v1::QuarantinedRun> held;  // put into quarantine during this work
    // In a retry: the number of items that the engine refused before and will refuse again. Null:
    // not a retry.
    uint64_t* refused_before = nullptr;

    // The following members belong to JudgeThreads.
    const JudgeThreads* threads = nullptr;
    TurnLock::Work work;
    pid_t thread = 0;
    clockid_t cpu_clock = CLOCK_THREAD_CPUTIME_ID;  // of this thread, for other threads
    std::atomic<int64_t> cpu_begun{0};              // ns of that clock when its work began
    std::atomic<bool> slow{false};                  // other threads took over from it
    bool gives_way = false;                         // has a lower priority; guarded by mutex_
    TaskTimer busy;
  };

  // Returns the worker of the calling thread; nullptr if this did not start the thread.
  Worker* Mine() const { return mine_ != nullptr && mine_->threads == this ? mine_ : nullptr; }

  // Starts a thread that runs `what` and ends by itself.
  void Start(std::function<void()> what);
  // Starts a thread that waits until the holder of the turn is slow. It then starts the next such
  // thread, and runs `loop` with the turn.
  void StartTakeover(std::function<void()> loop);
  // Waits until all threads have ended.
  void WaitForEnd();

  TurnLock& turn() { return turn_; }

  // Called by the holder of the turn before and after a piece of work. Others may take over if
  // `takeover` is true, later if `patient` is true: a checkpoint that is due waits until no work is
  // in progress. EndWork returns false if another thread took over meanwhile.
  void BeginWork(bool takeover, bool patient);
  bool EndWork();
  // Lets other threads continue while this one uses only data of its runs: `what` must not use
  // anything that the turn guards.
  template <typename What>
  void WithTakeover(const What& what) {
    turn_.OpenToTakeover(&mine_->work);
    what();
    turn_.CloseToTakeover(&mine_->work);
  }
  // Lowers the priority of slow threads. Call only if another thread can use the processor.
  void LowerSlow();
  std::chrono::nanoseconds UsedByMine() const { return TurnLock::Clock::now() - mine_->work.begun; }

  // Returns the longest time that a thread has spent on its current work. If other threads took
  // over from a thread, a tenth of its time counts, since they share the processors. Thread-safe.
  std::chrono::nanoseconds LongestWork() const;

 private:
  static thread_local Worker* mine_;

  TurnLock turn_;
  mutable Mutex mutex_;  // guards what follows
  CondVar changed_;
  std::list<Worker*> workers_ PLUMB_GUARDED_BY(mutex_);  // one per thread, on its stack
  size_t threads_ PLUMB_GUARDED_BY(mutex_) = 0;          // started and not ended
};

}  // namespace plumbline::server
