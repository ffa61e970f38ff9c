// Guards the data that the judging threads share: only the thread that holds this lock may use
// them. While a thread judges one run, whose data no other thread uses, others may take the lock
// over. They do so only if the holder is slow, since handing the lock over costs more than most
// pieces of work.
//
//   a judging thread   Lock ... Begin, OpenToTakeover, (judges a run), CloseToTakeover ... Unlock
//   the other thread   TakeOver: gets the lock when a holder that is open to it is slow
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe. Waiting threads get the lock in order of arrival.
class TurnLock {
 public:
  using Clock = std::chrono::steady_clock;

  // After this time with one piece of work, a holder counts as slow.
  static constexpr std::chrono::milliseconds kSlow{20};

  // One thread's piece of work. Only that thread and the lock use it.
  struct Work {
    Clock::time_point begun{};
    bool slow = false;  // the thread lost the lock, or was slow when it allowed takeover
  };

  // Waits for the lock.
  void Lock();
  void Unlock();
  // Returns true if a thread waits for the lock. The holder passes it on between two pieces of
  // work.
  bool wanted() const;

  // Called by the holder when work begins, which starts its time.
  void Begin(Work* work);
  // Called by the holder, which must not use shared data until CloseToTakeover.
  void OpenToTakeover(Work* work);
  // Makes the thread the holder again, perhaps after a wait.
  void CloseToTakeover(Work* work);
  // Called by the holder when the work is done.
  void End(Work* work);

  // Waits until it gets the lock from a slow holder that is open to takeover. One thread at a time.
  // Returns false if Stop was called.
  bool TakeOver();
  // If `allowed` is false, no lock is taken over: as many runs as allowed are in progress. A holder
  // is slow after `slow`.
  void AllowTakeover(bool allowed, std::chrono::milliseconds slow = kSlow);
  void Stop();

 private:
  struct Waiter {
    CondVar turn;
    bool has = false;  // guarded by mutex_
  };
  void LockLocked(MutexLock& lock) PLUMB_REQUIRES(mutex_);
  void UnlockLocked() PLUMB_REQUIRES(mutex_);

  mutable Mutex mutex_;  // guards all following members
  bool held_ PLUMB_GUARDED_BY(mutex_) = false;
  std::deque<Waiter*> waiting_ PLUMB_GUARDED_BY(mutex_);
  Work* open_ PLUMB_GUARDED_BY(mutex_) = nullptr;  // of the holder; null: not open to takeover
  bool at_work_ PLUMB_GUARDED_BY(mutex_) = false;  // the holder has begun a piece of work
  bool allowed_ PLUMB_GUARDED_BY(mutex_) = true;
  std::chrono::milliseconds slow_ PLUMB_GUARDED_BY(mutex_) = kSlow;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  bool asleep_ PLUMB_GUARDED_BY(mutex_) = false;  // TakeOver waits for work to begin
  CondVar relief_;
};

}  // namespace plumbline::server
