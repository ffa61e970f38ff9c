// How many runs a judge knows that no process is connected for, and what it knows of runs by name.

#include <utility>
#include <vector>

#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostRunsALook = 1000;  // runs a look: each is an entry of the journal

}  // namespace

void Judge::PartWithRuns() {
  EndDisconnected();
  ForgetLongOver();
  ForgetIncidents();
}

// False: something of it waits to be judged, or its fate is in an operator's hands.
bool Judge::MayPartWith(const std::string& run) const {
  return !fair_queue_.Busy(run) && !fair_queue_.Urgent(run) && !quarantine_->Holds(run);
}

// Ends the grace of the ranks, so that the timers report them as gone and then end their run. A run
// that sent no evidence leaves no trace.
void Judge::EndDisconnected() {
  std::vector<std::string> greeted;
  const RunTable::Time now = awake_.At(JudgeQueue::Clock::now());
  {
    const MutexLock lock(mutex_);
    const std::vector<RunTable::Left> left = runs_.Disconnected();
    size_t ended = 0;
    for (size_t i = 0; i + max_runs_ < left.size() && ended < kMostRunsALook; ++i) {
      const std::string& run = left[i].run;
      if (!MayPartWith(run)) continue;
      if (left[i].evidence > 0 || engine_->Knows(run)) {
        ++ended;
        runs_.EndGrace(run, now);
      } else {
        runs_.Erase(run);
        greeted.push_back(run);
      }
    }
  }
  for (const std::string& run : greeted) OnRunOver(run);
}

// By events, so that incidents end at the same places after a restart.
void Judge::ForgetLongOver() {
  std::vector<RunTable::Left> over;
  {
    const MutexLock lock(mutex_);
    over = runs_.Over(max_runs_ / 2);
  }
  std::vector<std::string> free;
  {
    const MutexLock lock(mutex_);
    free = over_runs_.SetMany(over.size() > 2 * max_runs_);
    std::erase_if(
        free, [this](const std::string& run) PLUMB_REQUIRES(mutex_) { return !runs_.Ended(run); });
  }
  for (const std::string& run : free) OnRunOver(run);
  size_t forgotten = 0;
  for (size_t i = 0; i + max_runs_ < over.size() && forgotten < kMostRunsALook; ++i) {
    const std::string& run = over[i].run;
    if (!MayPartWith(run)) continue;
    ++forgotten;
    v1::JudgeEvent event;
    event.mutable_run_finished()->set_run(run);
    event.mutable_run_finished()->set_forgotten(true);
    PushEvent(std::move(event));
  }
}

bool Judge::KeepPlace(const std::string& run) {
  const MutexLock lock(mutex_);
  return over_runs_.KeepPlace(run);
}

void Judge::ForgetRun(const std::string& run) {
  incident_table_->RunForgotten(run);
  store_->ForgetRun(run);
  LogInfo("run {:?}: removed: more than {} runs have ended (ingest.max_runs)", run, max_runs_);
  const MutexLock lock(mutex_);
  runs_.Erase(run);
  reports_.Forget(run);
  over_runs_.Forgotten(run, JudgeQueue::Clock::now());
}

// Those of a run that has begun anew since are that run's.
void Judge::ForgetIncidents() {
  const MutexLock lock(mutex_);
  for (const std::string& run : over_runs_.TakeForgotten(JudgeQueue::Clock::now())) {
    if (runs_.LastSeen(run) == 0) incident_table_->Forget(run);
  }
}

RunOwner Judge::OwnerOf(const std::string& run) const {
  const MutexLock lock(owners_mutex_);
  return owner_of_ ? owner_of_(run) : Owner();
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

}  // namespace plumbline::server
