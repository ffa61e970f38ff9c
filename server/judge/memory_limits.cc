#include "server/judge/memory_limits.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/engine/close_events.h"
#include "server/process/log.h"

namespace plumbline::server {

MemoryLimits::MemoryLimits(Judging* judging, Quarantine* quarantine, HeldRuns* held_runs,
                           uint64_t bytes)
    : judging_(judging),
      quarantine_(quarantine),
      held_runs_(held_runs),
      of_steps_{MemoryBudget(HeldOf(&rules::Engine::open_bytes, &rules::Engine::open_bytes), bytes),
                0, "its oldest steps close: the memory of the open steps of all runs",
                "its open steps use "},
      of_rules_{MemoryBudget(HeldOf(&rules::Engine::rule_bytes, &rules::Engine::rule_bytes), bytes),
                rules::kOfItsRules, "rules stop judging it: the state of the rules for all runs",
                "the state of the rules for it takes "} {}

MemoryBudget::Held MemoryLimits::HeldOf(OfAll all, OfRun of_run) const {
  return {[this, all] { return (engine_->*all)(); },
          [this, of_run](const std::string& run) { return (engine_->*of_run)(run); },
          [this] { return engine_->Runs(); }};
}

MemoryBudget::OwnerOf MemoryLimits::Owners() const {
  return [this](const std::string& run) { return judging_->OwnerOf(run); };
}

bool MemoryLimits::urgent() const {
  for (const Kind* kind : {&of_steps_, &of_rules_}) {
    if (kind->budget.promised() && kind->budget.FarOver()) return true;
  }
  return false;
}

void MemoryLimits::Keep() {
  Keep(of_steps_);
  Keep(of_rules_);
}

void MemoryLimits::Keep(Kind& kind) {
  while (judging_->may_decide()) {
    const auto request = kind.budget.Next(Owners());
    if (!request) return;
    const std::string& run = request->run;
    if (quarantine_->Holds(run)) {
      // its retry is in progress; this is checked again after the retry
      if (judging_->Busy(run)) return;
      engine_->Drop(run);
      held_runs_->EndRetryOf(run, absl::ResourceExhaustedError(absl::StrCat(
                                      "its open steps and those of all other runs use more than ",
                                      limit() >> 20, " MiB: raise limits.open_bytes")));
      continue;
    }
    kind.budget.Promise(*request);
    if (judging_->catching_up()) {
      MakeRoom(run, kind);
    } else {
      judging_->DoFirst(run, [this, run, &kind] { MakeRoom(run, kind); });
    }
  }
}

// Called at the run's turn.
void MemoryLimits::MakeRoom(const std::string& run, Kind& kind) {
  const auto bytes = kind.budget.TakePromise(run);
  if (!bytes || !judging_->may_decide() || quarantine_->Holds(run)) return;
  const uint64_t held = kind.budget.held(run);
  v1::JudgeEvent event;
  event.mutable_make_room()->set_run(run);
  event.mutable_make_room()->set_bytes(*bytes | kind.of_what);
  LogWarning("run {:?}: {} is more than {} MiB (limits.open_bytes), and of it {} MiB", run,
             kind.why, kind.budget.limit() >> 20, held >> 20);
  if (judging_->KeepAndApply(std::move(event)).ok()) kind.budget.Shrunk(run, held);
}

// If the server of this journal closed these steps for lack of memory and had the same limit, the
// event that closes them comes next. So only a lowered limit has an effect here.
void MemoryLimits::KeepInReplay(bool more_events) {
  if (!more_events) return Keep();
  for (const Kind* kind : {&of_steps_, &of_rules_}) {
    const MemoryBudget& budget = kind->budget;
    while (budget.FarOver()) {
      const std::string run = budget.FurthestAbove(Owners());
      const uint64_t held = budget.held(run);
      engine_->Drop(run);
      quarantine_->Failed(run,
                          absl::StrCat(kind->what, held >> 20, " MiB; the limit for all runs is ",
                                       budget.limit() >> 20, " MiB (limits.open_bytes)"));
      held_runs_->Report();
    }
  }
}

}  // namespace plumbline::server
