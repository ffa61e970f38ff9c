// Limits what all runs together hold: docs/decisions/0020.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

// Frees a sixteenth more than needed, because each time costs a commit of the journal.
constexpr uint64_t kSlack = 16;

}  // namespace

// The run that holds most must free memory: it closes its oldest steps, or loses the rules that
// remember most of it. This is an event, so a restart and an audit of the stored run do the same.
// It happens at the run's turn, before other work begins; what the run has promised counts as
// freed.
void Judge::KeepWithinBudget() {
  KeepWithin(of_steps_);
  KeepWithin(of_rules_);
}

void Judge::KeepWithin(Budget& budget) {
  while (open_limit_ > 0 && !undecided_ && Deciding() &&
         Held(budget) > open_limit_ + budget.promised_bytes) {
    const std::string run = WhoGivesWay(budget);
    const uint64_t over = Held(budget) - budget.promised_bytes - open_limit_ + open_limit_ / kSlack;
    const uint64_t bytes = std::min(CanGive(budget, run), over);
    if (bytes == 0) return;
    if (quarantine_->Holds(run)) {
      // its retry is in progress; this is checked again after it
      if (fair_queue_.Busy(run)) return;
      RetryTakesTooMuch(run);
      continue;
    }
    budget.promised[run] += bytes;
    budget.promised_bytes += bytes;
    if (catching_up_) {
      MakeRoom(run, budget);
      continue;
    }
    JudgeItem item;
    item.kind = JudgeItem::Kind::kTask;
    item.run = run;
    item.task = [this, run, &budget] { MakeRoom(run, budget); };
    FairQueue::Work work = WorkOf(std::move(item));
    work.room = true;
    fair_queue_.PushFirst(std::move(work));
  }
}

uint64_t Judge::Held(const Budget& budget) const { return (engine_.get()->*budget.all)(); }
uint64_t Judge::Held(const Budget& budget, const std::string& run) const {
  return (engine_.get()->*budget.of_run)(run);
}

// Returns what a run holds and has not promised; 0 if it freed too little before and has hardly
// grown since.
uint64_t Judge::CanGive(const Budget& budget, const std::string& run) const {
  const uint64_t held = Held(budget, run);
  const auto in_vain = budget.in_vain.find(run);
  if (in_vain != budget.in_vain.end() && held <= in_vain->second + open_limit_ / kSlack) return 0;
  const auto promised = budget.promised.find(run);
  return held - std::min(held, promised == budget.promised.end() ? 0 : promised->second);
}

// Called at the run's turn.
void Judge::MakeRoom(const std::string& run, Budget& budget) {
  const auto promised = budget.promised.extract(run);
  if (promised.empty()) return;  // another call has used the promise
  budget.promised_bytes -= promised.mapped();
  if (undecided_ || !Deciding() || quarantine_->Holds(run) || Held(budget) <= open_limit_) return;
  const uint64_t held = Held(budget, run);
  v1::JudgeEvent event;
  event.mutable_make_room()->set_run(run);
  event.mutable_make_room()->set_bytes((held - std::min(held, promised.mapped())) | budget.of_what);
  LogWarning("run {:?}: {} is more than {} MiB (limits.open_bytes), and of it {} MiB", run,
             budget.why, open_limit_ >> 20, held >> 20);
  if (!KeepAndApply(std::move(event)).ok()) return;
  ++budget.made_room;
  std::erase_if(budget.in_vain, [&](const auto& of) { return Held(budget, of.first) == 0; });
  if (Held(budget, run) >= held) budget.in_vain[run] = held;
}

void Judge::SetOwners(std::function<Owner(const std::string& run)> owner_of) {
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

// Chooses by owner, so that a tenant with many runs does not make another's large run the first to
// go.
std::string Judge::WhoGivesWay(const Budget& budget) const {
  const MutexLock lock(owners_mutex_);
  struct Holder {
    double above = 0;  // bytes, divided by the share
    uint64_t most = 0;
    std::string run;
  };
  std::map<std::string, Holder> owners;
  for (const std::string& run : engine_->Runs()) {
    const uint64_t bytes = CanGive(budget, run);
    const Owner owner = owner_of_ ? owner_of_(run) : Owner();
    Holder& held = owners[owner.name];
    held.above += static_cast<double>(bytes) / owner.share;
    if (bytes <= held.most) continue;
    held.most = bytes;
    held.run = run;
  }
  const auto first = std::max_element(
      owners.begin(), owners.end(),
      [](const auto& a, const auto& b) { return a.second.above < b.second.above; });
  return first == owners.end() ? std::string() : first->second.run;
}

// If the server of this journal closed these steps for lack of memory and had the same limit, the
// event that closes them comes next. So only a lowered limit has an effect here.
void Judge::KeepReplayWithinBudget(bool more_events) {
  if (!more_events) return KeepWithinBudget();
  const uint64_t most = open_limit_ + open_limit_ / 4;
  for (const Budget* budget : {&of_steps_, &of_rules_}) {
    while (open_limit_ > 0 && Held(*budget) > most) {
      const std::string run = WhoGivesWay(*budget);
      const uint64_t held = Held(*budget, run);
      engine_->Drop(run);
      quarantine_->Failed(run,
                          absl::StrCat(budget->what, held >> 20, " MiB, and all runs may hold ",
                                       open_limit_ >> 20, " MiB (limits.open_bytes)"));
      TellHeld();
    }
  }
}

void Judge::RetryTakesTooMuch(const std::string& run) {
  engine_->Drop(run);
  if (retry_ == nullptr || retry_->run.run() != run) return;
  EndRetry(absl::ResourceExhaustedError(
      absl::StrCat("its open steps and those of all other runs hold more than ", open_limit_ >> 20,
                   " MiB: raise limits.open_bytes")));
}

}  // namespace plumbline::server
