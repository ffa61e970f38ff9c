#include "agent/core/run/call_batch.h"

#include "base/clock.h"

namespace plumbline::agent {

CallBatch::CallBatch(RunState* state) : state_(state) {
  waiting_.lost = [this](const probes::DeviceTag& tag, probes::DeviceOutcome outcome,
                         const DeviceError& error) { Lost(tag, outcome, error); };
}

// Returns an address that is unique to this thread during its lifetime.
uintptr_t CallBatch::Self() {
  static thread_local char here;
  return reinterpret_cast<uintptr_t>(&here);
}

bool CallBatch::Begin() {
  const MutexLock lock(mutex_);
  if (owner_.load(std::memory_order_relaxed) == 0) {
    owner_.store(Self(), std::memory_order_relaxed);
  } else if (!mine()) {
    return false;
  }
  ++depth_;
  return true;
}

void CallBatch::End() {
  const MutexLock lock(mutex_);
  if (!mine()) return;
  LaunchLocked();
  if (--depth_ == 0) owner_.store(0, std::memory_order_relaxed);
}

void CallBatch::Launch() {
  if (owner_.load(std::memory_order_relaxed) == 0) return;
  const MutexLock lock(mutex_);
  LaunchLocked();
}

void CallBatch::Close() {
  if (owner_.load(std::memory_order_relaxed) == 0) return;
  const MutexLock lock(mutex_);
  const auto lose = [&](auto& groups) {
    for (auto& group : groups) {
      for (const auto& waiting : group.jobs)
        state_->CountLoss(LossCause::kLate, static_cast<Site*>(waiting.tag.site), waiting.tag.step);
      group.Clear();
    }
  };
  lose(waiting_.tensors);
  lose(waiting_.updates);
  depth_ = 0;
  owner_.store(0, std::memory_order_relaxed);
}

// The time counts against the budget like that of the calls.
void CallBatch::LaunchLocked() {
  if (waiting_.empty()) return;
  const uint64_t begin = MonotonicNs();
  const bool crowded = state_->devices->Launch(&waiting_);
  if (crowded && !state_->rung.load(std::memory_order_relaxed)) state_->Ring();
  state_->governor.Charge(MonotonicNs() - begin);
}

void CallBatch::Lost(const probes::DeviceTag& tag, probes::DeviceOutcome outcome,
                     const DeviceError& error) {
  if (outcome == probes::DeviceOutcome::kFailed) ReportDevice(&state_->reported_failed, error);
  state_->CountLoss(LossOf(outcome), static_cast<Site*>(tag.site), tag.step);
}

}  // namespace plumbline::agent
