#include "server/judge/turn_lock.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kTurnLook{
    5};  // period for a holder that is not open to takeover

}  // namespace

void TurnLock::LockLocked(MutexLock& lock) {
  if (!held_) {
    held_ = true;
    return;
  }
  Waiter waiter;
  waiting_.push_back(&waiter);
  waiter.turn.Wait(lock, [&] { return waiter.has; });
}

// Passes the lock to the thread that has waited longest. The lock is never free in between, so no
// other thread overtakes.
void TurnLock::UnlockLocked() {
  if (waiting_.empty()) {
    held_ = false;
    return;
  }
  Waiter* next = waiting_.front();
  waiting_.pop_front();
  next->has = true;
  next->turn.NotifyOne();
}

void TurnLock::Lock() {
  MutexLock lock(mutex_);
  LockLocked(lock);
}

void TurnLock::Unlock() {
  const MutexLock lock(mutex_);
  UnlockLocked();
}

bool TurnLock::wanted() const {
  const MutexLock lock(mutex_);
  return !waiting_.empty();
}

void TurnLock::Begin(Work* work) {
  work->begun = Clock::now();
  work->slow = false;
  const MutexLock lock(mutex_);
  at_work_ = true;
  if (asleep_) relief_.NotifyOne();
}

void TurnLock::End(Work* work) {
  const MutexLock lock(mutex_);
  if (!work->slow) at_work_ = false;
}

void TurnLock::OpenToTakeover(Work* work) {
  const MutexLock lock(mutex_);
  if (work->slow) return UnlockLocked();
  open_ = work;
}

void TurnLock::CloseToTakeover(Work* work) {
  MutexLock lock(mutex_);
  if (work->slow) return LockLocked(lock);
  open_ = nullptr;
}

bool TurnLock::TakeOver() {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopped_) return false;
    if (!at_work_) {
      asleep_ = true;
      relief_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return stopped_ || at_work_; });
      asleep_ = false;
    }
    const auto now = Clock::now();
    if (open_ != nullptr && allowed_ && now - open_->begun >= slow_) {
      open_->slow = true;
      open_ = nullptr;
      at_work_ = false;
      return true;  // held_ stays true, because this thread holds the lock
    }
    // An open holder becomes slow at a known time; a closed one is checked again.
    auto wake = now + kTurnLook;
    if (open_ != nullptr && allowed_) wake = open_->begun + slow_;
    relief_.WaitUntil(lock, wake, [this]() PLUMB_REQUIRES(mutex_) { return stopped_; });
  }
}

void TurnLock::AllowTakeover(bool allowed, std::chrono::milliseconds slow) {
  const MutexLock lock(mutex_);
  allowed_ = allowed;
  slow_ = slow;
}

void TurnLock::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  relief_.NotifyAll();
}

}  // namespace plumbline::server
