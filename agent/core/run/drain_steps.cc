// The drain thread's part in steps that the loop writes itself (plumbline/steps.h): series, and no
// more.
#include <algorithm>

#include "agent/core/run/drain.h"

namespace plumbline::agent {

uint64_t Drain::StepsWritten() const {
  const plumbline_steps_t* steps = run_->steps.load(std::memory_order_acquire);
  return steps == nullptr ? 0 : __atomic_load_n(&steps->written, __ATOMIC_ACQUIRE);
}

// Reads unread steps among the first `written` ones, up to step `before`, which is not read: the
// ring's records of that step were written after these steps.
void Drain::ReadSteps(int64_t before, uint64_t written) {
  // A writer that did not wait for space has overwritten its oldest steps.
  for (; written > steps_read_ + PLUMBLINE_STEPS; ++steps_read_)
    run_->CountLoss(LossCause::kRingFull, nullptr, before == kAnyStep ? 0 : before);
  while (steps_read_ < written) {
    plumbline_steps_t* steps = run_->steps.load(std::memory_order_acquire);
    const plumbline_step_facts_t facts = steps->facts[steps_read_ % PLUMBLINE_STEPS];
    if (facts.step >= before) return;
    ++steps_read_;
    __atomic_store_n(&steps->read, steps_read_, __ATOMIC_RELEASE);
    AddStep(facts);
    if (builder_.Full()) {
      DeclareSites();
      Ship();
    }
  }
}

void Drain::AddStep(const plumbline_step_facts_t& facts) {
  if (facts.step <= builder_.complete_through()) {
    return run_->CountLoss(LossCause::kLate, nullptr, facts.step);
  }
  step_sites_.resize(run_->step_series.size());
  for (size_t k = 0; k < step_sites_.size(); ++k) {
    if ((facts.given >> k & 1) == 0) continue;
    const Site*& site = step_sites_[k];
    if (site == nullptr)
      site = run_->sites.FindOrAdd(SiteKind::kScalar, "", run_->step_series[k], facts.step);
    if (site == nullptr) {
      run_->CountLoss(LossCause::kTooManySites, nullptr, facts.step);
      continue;
    }
    builder_.AddScalar(facts.step, {site, 0, k + 1, facts.value[k]});
    run_->exit_report.Value(site, facts.step, facts.value[k]);
    run_->first_non_finite.Value(site, facts.step, facts.value[k]);
  }
  // Updates the loop's heartbeat, as StepBegin and StepEnd do.
  int64_t newest = run_->newest_step.load(std::memory_order_relaxed);
  while (newest < facts.step && !run_->newest_step.compare_exchange_weak(newest, facts.step)) {
  }
  uint64_t moved = run_->moved_ns.load(std::memory_order_relaxed);
  while (moved < facts.end_ns && !run_->moved_ns.compare_exchange_weak(moved, facts.end_ns)) {
  }
  run_->steps_ended.fetch_add(1, std::memory_order_relaxed);
  AddMarked(facts.step, facts.end_ns);
  loop_.StepEnded(facts.step, 0, 0);  // a step without stages is not part of a block
  EmptyDevices();
  if (held_ends_.empty() && run_->devices->empty()) return EndStep(facts.step, false);
  held_ends_.push_back({facts.step, false, run_->devices->Position()});
}

}  // namespace plumbline::agent
