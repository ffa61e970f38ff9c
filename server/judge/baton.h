// Who may touch what the judging threads share: one of them at a time, who has the baton. What is
// of one run alone is judged beside the baton: it stays with its holder while that takes no longer
// than a moment, and is handed to the next one when it does.
//
//   a judging thread   Take ... Begin, Loosen, (judges a run), Tighten ... Give
//   the relief         TakeFromSlow: gets the baton when a loose holder is slow
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe. First come, first served.
class Baton {
 public:
  using Clock = std::chrono::steady_clock;

  // So long may one be at a piece of work before others go on beside it.
  static constexpr std::chrono::milliseconds kSlow{20};

  // One thread's piece of work. Its own, but for what the baton does with it.
  struct Work {
    Clock::time_point begun{};
    bool slow = false;  // it lost the baton, or was slow when it loosened it
  };

  // Waits for it.
  void Take();
  void Give();
  // Whether somebody waits for it: the holder gives it to them between two pieces of work.
  bool wanted() const;

  // By the holder: what follows counts from now on.
  void Begin(Work* work);
  // By the holder: until Tighten it touches nothing that is shared.
  void Loosen(Work* work);
  // The holder again, perhaps after a wait.
  void Tighten(Work* work);
  // By the holder: the work is done.
  void End(Work* work);

  // Waits until it got the baton from a slow holder that has loosened it. One thread at a time.
  // False: Stop was called.
  bool TakeFromSlow();
  // While false, nobody's baton is taken: as many go on beside each other as may.
  void AllowTaking(bool allowed);
  void Stop();

 private:
  struct Waiter {
    CondVar turn;
    bool has = false;  // behind mutex_
  };
  void TakeLocked(MutexLock& lock) PLUMB_REQUIRES(mutex_);
  void GiveLocked() PLUMB_REQUIRES(mutex_);

  mutable Mutex mutex_;  // guards all that follows
  bool held_ PLUMB_GUARDED_BY(mutex_) = false;
  std::deque<Waiter*> waiting_ PLUMB_GUARDED_BY(mutex_);
  Work* loose_ PLUMB_GUARDED_BY(mutex_) = nullptr;  // of the holder; null: it has not loosened it
  bool at_work_ PLUMB_GUARDED_BY(mutex_) = false;   // the holder has begun a piece of work
  bool allowed_ PLUMB_GUARDED_BY(mutex_) = true;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  bool asleep_ PLUMB_GUARDED_BY(mutex_) = false;  // the relief waits for work to begin
  CondVar relief_;
};

}  // namespace plumbline::server
