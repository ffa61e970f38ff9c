// Who may touch what the judging threads share: one of them at a time, who holds this lock. While a
// thread judges one run, of which it alone has the data, others may take the lock over: not at
// once, since handing it over costs more than most pieces of work, but when the holder is slow.
//
//   a judging thread   Lock ... Begin, OpenToTakeover, (judges a run), CloseToTakeover ... Unlock
//   the other thread   TakeOver: gets the lock when a holder that is open to it is slow
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe. First come, first served.
class TurnLock {
 public:
  using Clock = std::chrono::steady_clock;

  // So long may one be at a piece of work before others go on beside it.
  static constexpr std::chrono::milliseconds kSlow{20};

  // One thread's piece of work. Its own, but for what the lock does with it.
  struct Work {
    Clock::time_point begun{};
    bool slow = false;  // it lost the lock, or was slow when it opened it to others
  };

  // Waits for it.
  void Lock();
  void Unlock();
  // Whether somebody waits for it: the holder gives it to them between two pieces of work.
  bool wanted() const;

  // By the holder: what follows counts from now on.
  void Begin(Work* work);
  // By the holder: until CloseToTakeover it touches nothing that is shared.
  void OpenToTakeover(Work* work);
  // The holder again, perhaps after a wait.
  void CloseToTakeover(Work* work);
  // By the holder: the work is done.
  void End(Work* work);

  // Waits until it got the lock from a slow holder that is open to it. One thread at a time.
  // False: Stop was called.
  bool TakeOver();
  // While false, nobody's lock is taken over: as many go on at once as may. A holder is slow
  // after `slow`.
  void AllowTakeover(bool allowed, std::chrono::milliseconds slow = kSlow);
  void Stop();

 private:
  struct Waiter {
    CondVar turn;
    bool has = false;  // behind mutex_
  };
  void LockLocked(MutexLock& lock) PLUMB_REQUIRES(mutex_);
  void UnlockLocked() PLUMB_REQUIRES(mutex_);

  mutable Mutex mutex_;  // guards all that follows
  bool held_ PLUMB_GUARDED_BY(mutex_) = false;
  std::deque<Waiter*> waiting_ PLUMB_GUARDED_BY(mutex_);
  Work* open_ PLUMB_GUARDED_BY(mutex_) = nullptr;  // of the holder; null: it is not open to others
  bool at_work_ PLUMB_GUARDED_BY(mutex_) = false;  // the holder has begun a piece of work
  bool allowed_ PLUMB_GUARDED_BY(mutex_) = true;
  std::chrono::milliseconds slow_ PLUMB_GUARDED_BY(mutex_) = kSlow;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  bool asleep_ PLUMB_GUARDED_BY(mutex_) = false;  // TakeOver waits for work to begin
  CondVar relief_;
};

}  // namespace plumbline::server
