// Limits what all runs together hold: docs/decisions/0020.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
// The run that holds most must free memory: it closes its oldest steps, or loses the rules that
// remember most of it. This is an event, so a restart and an audit of the stored run do the same.
// It happens at the run's turn, before other work begins; what the run has promised counts as
// freed.
void Judge::KeepWithinBudget() {
  KeepWithin(of_steps_);
  KeepWithin(of_rules_);
}

void Judge::KeepWithin(Kind& kind) {
  while (!undecided_ && decisions_.open()) {
    const auto request = kind.budget.Next(OwnerOf());
    if (!request) return;
    const std::string& run = request->run;
    if (quarantine_->Holds(run)) {
      // its retry is in progress; this is checked again after it
      if (fair_queue_.Busy(run)) return;
      engine_->Drop(run);
      held_runs_.EndRetryOf(run, absl::ResourceExhaustedError(absl::StrCat(
                                     "its open steps and those of all other runs use more than ",
                                     open_step_limit() >> 20, " MiB: raise limits.open_bytes")));
      continue;
    }
    kind.budget.Promise(*request);
    if (catching_up_) {
      MakeRoom(run, kind);
      continue;
    }
    JudgeItem item;
    item.kind = JudgeItem::Kind::kTask;
    item.run = run;
    item.task = [this, run, &kind] { MakeRoom(run, kind); };
    FairQueue::Work work = WorkOf(std::move(item));
    work.room = true;
    fair_queue_.PushFirst(std::move(work));
  }
}

// Called at the run's turn.
void Judge::MakeRoom(const std::string& run, Kind& kind) {
  const auto bytes = kind.budget.TakePromise(run);
  if (!bytes || undecided_ || !decisions_.open() || quarantine_->Holds(run)) return;
  const uint64_t held = kind.budget.held(run);
  v1::JudgeEvent event;
  event.mutable_make_room()->set_run(run);
  event.mutable_make_room()->set_bytes(*bytes | kind.of_what);
  LogWarning("run {:?}: {} is more than {} MiB (limits.open_bytes), and of it {} MiB", run,
             kind.why, kind.budget.limit() >> 20, held >> 20);
  if (KeepAndApply(std::move(event)).ok()) kind.budget.Shrunk(run, held);
}

// Returns a function that may be called at any time.
MemoryBudget::OwnerOf Judge::OwnerOf() const {
  return [this](const std::string& run) {
    const MutexLock lock(owners_mutex_);
    return owner_of_ ? owner_of_(run) : Owner();
  };
}

MemoryBudget::Held Judge::HeldOf(uint64_t (rules::Engine::*all)() const,
                                 uint64_t (rules::Engine::*of_run)(const std::string&) const) {
  return {[this, all] { return (engine_.get()->*all)(); },
          [this, of_run](const std::string& run) { return (engine_.get()->*of_run)(run); },
          [this] { return engine_->Runs(); }};
}

void Judge::SetOwners(MemoryBudget::OwnerOf owner_of) {
  const MutexLock lock(owners_mutex_);
  owner_of_ = std::move(owner_of);
}

void Judge::SetOnOver(std::function<void(const std::string& run)> on_over) {
  const MutexLock lock(owners_mutex_);
  on_over_ = std::move(on_over);
}

void Judge::SetKnownStreams(std::function<bool(uint64_t stream_id)> known) {
  const MutexLock lock(owners_mutex_);
  known_stream_ = std::move(known);
}

// Records the names of the runs in progress, which came from a checkpoint and the journal.
void Judge::NoteNames() {
  std::vector<KnownName> names;
  for (const std::string& run : engine_->Runs()) {
    engine_->ForEachName(
        run, [&](const std::string& layer, const std::string& op, const std::string& cause) {
          names.push_back({run, layer, op, cause});
        });
  }
  const MutexLock lock(owners_mutex_);
  names_ = std::move(names);
}

std::vector<KnownName> Judge::TakeNames() {
  const MutexLock lock(owners_mutex_);
  return std::exchange(names_, {});
}

// If the server of this journal closed these steps for lack of memory and had the same limit, the
// event that closes them comes next. So only a lowered limit has an effect here.
void Judge::KeepReplayWithinBudget(bool more_events) {
  if (!more_events) return KeepWithinBudget();
  for (const Kind* kind : {&of_steps_, &of_rules_}) {
    const MemoryBudget& budget = kind->budget;
    while (budget.FarOver()) {
      const std::string run = budget.FurthestAbove(OwnerOf());
      const uint64_t held = budget.held(run);
      engine_->Drop(run);
      quarantine_->Failed(run,
                          absl::StrCat(kind->what, held >> 20, " MiB; the limit for all runs is ",
                                       budget.limit() >> 20, " MiB (limits.open_bytes)"));
      held_runs_.Report();
    }
  }
}

}  // namespace plumbline::server
