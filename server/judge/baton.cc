#include "server/judge/baton.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kLook{5};  // at a holder that has not loosened it

}  // namespace

void Baton::TakeLocked(MutexLock& lock) {
  if (!held_) {
    held_ = true;
    return;
  }
  Waiter waiter;
  waiting_.push_back(&waiter);
  waiter.turn.Wait(lock, [&] { return waiter.has; });
}

// To who has waited longest; it is never free in between, so nobody overtakes.
void Baton::GiveLocked() {
  if (waiting_.empty()) {
    held_ = false;
    return;
  }
  Waiter* next = waiting_.front();
  waiting_.pop_front();
  next->has = true;
  next->turn.NotifyOne();
}

void Baton::Take() {
  MutexLock lock(mutex_);
  TakeLocked(lock);
}

void Baton::Give() {
  const MutexLock lock(mutex_);
  GiveLocked();
}

bool Baton::wanted() const {
  const MutexLock lock(mutex_);
  return !waiting_.empty();
}

void Baton::Begin(Work* work) {
  work->begun = Clock::now();
  work->slow = false;
  const MutexLock lock(mutex_);
  at_work_ = true;
  if (asleep_) relief_.NotifyOne();
}

void Baton::End(Work* work) {
  const MutexLock lock(mutex_);
  if (!work->slow) at_work_ = false;
}

void Baton::Loosen(Work* work) {
  const MutexLock lock(mutex_);
  if (work->slow) return GiveLocked();
  loose_ = work;
}

void Baton::Tighten(Work* work) {
  MutexLock lock(mutex_);
  if (work->slow) return TakeLocked(lock);
  loose_ = nullptr;
}

bool Baton::TakeFromSlow() {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopped_) return false;
    if (!at_work_) {
      asleep_ = true;
      relief_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return stopped_ || at_work_; });
      asleep_ = false;
    }
    const auto now = Clock::now();
    if (loose_ != nullptr && allowed_ && now - loose_->begun >= kSlow) {
      loose_->slow = true;
      loose_ = nullptr;
      at_work_ = false;
      return true;  // held_ stays: it is ours
    }
    // What is loose becomes slow at a known time; what is not is looked at again.
    auto wake = now + kLook;
    if (loose_ != nullptr && allowed_) wake = loose_->begun + kSlow;
    relief_.WaitUntil(lock, wake, [this]() PLUMB_REQUIRES(mutex_) { return stopped_; });
  }
}

void Baton::AllowTaking(bool allowed) {
  const MutexLock lock(mutex_);
  allowed_ = allowed;
}

void Baton::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  relief_.NotifyAll();
}

}  // namespace plumbline::server
