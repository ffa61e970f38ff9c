#include "server/judge/baton.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kLook{5};  // at a holder that has not loosened it

}  // namespace

void Baton::TakeLocked(std::unique_lock<std::mutex>& lock) {
  if (!held_) {
    held_ = true;
    return;
  }
  Waiter waiter;
  waiting_.push_back(&waiter);
  waiter.turn.wait(lock, [&] { return waiter.has; });
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
  next->turn.notify_one();
}

void Baton::Take() {
  std::unique_lock lock(mutex_);
  TakeLocked(lock);
}

void Baton::Give() {
  std::lock_guard lock(mutex_);
  GiveLocked();
}

bool Baton::wanted() const {
  std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

void Baton::Begin(Work* work) {
  work->begun = Clock::now();
  work->slow = false;
  std::lock_guard lock(mutex_);
  at_work_ = true;
  if (asleep_) relief_.notify_one();
}

void Baton::End(Work* work) {
  std::lock_guard lock(mutex_);
  if (!work->slow) at_work_ = false;
}

void Baton::Loosen(Work* work) {
  std::lock_guard lock(mutex_);
  if (work->slow) return GiveLocked();
  loose_ = work;
}

void Baton::Tighten(Work* work) {
  std::unique_lock lock(mutex_);
  if (work->slow) return TakeLocked(lock);
  loose_ = nullptr;
}

bool Baton::TakeFromSlow() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopped_) return false;
    if (!at_work_) {
      asleep_ = true;
      relief_.wait(lock, [this] { return stopped_ || at_work_; });
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
    relief_.wait_until(lock, wake, [this] { return stopped_; });
  }
}

void Baton::AllowTaking(bool allowed) {
  std::lock_guard lock(mutex_);
  allowed_ = allowed;
}

void Baton::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  relief_.notify_all();
}

}  // namespace plumbline::server
