// Decisions that depend on the clock.

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/clock.h"
#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kLookPeriod{500};  // for ranks without progress
constexpr size_t kMostRunsOver = 64;                   // whose rule state is kept
constexpr std::chrono::seconds kForgetPeriod{5};       // between checks of streams that are gone
constexpr std::chrono::seconds kAwaitQuietly{3};       // for ranks that have not come yet
// if a report has waited this long, nothing is decided about its run
constexpr std::chrono::seconds kLag{1};
constexpr size_t kMostRunsALook = 1000;  // runs in one check: each is an entry of the journal

}  // namespace

void Judge::CloseOverTheSlow(const RunTable::Skip& skip) {
  for (const std::string& run : engine_->Runs()) {
    if (skip(run) || fair_queue_.Busy(run) || fair_queue_.Urgent(run)) continue;
    for (const rules::Lag& lag : engine_->Lagging(run)) {
      v1::JudgeEvent event;
      const bool may = [&] {
        const MutexLock lock(mutex_);
        return runs_.MayClose(run, lag, event.mutable_steps_closed());
      }();
      if (may) PushEvent(std::move(event));
    }
  }
}

// Forgets the sets of streams that the table has forgotten; such a stream declares them again when
// it returns. Its batches may still be in the journal's queue. So one call records the last entry,
// and a later call forgets the stream when that entry is judged.
void Judge::ForgetStreams(JudgeQueue::Clock::time_point now) {
  if (now < next_forget_ || !journal_->state().ok()) return;
  next_forget_ = now + kForgetPeriod;
  std::map<uint64_t, uint64_t> left;
  {
    const MutexLock lock(owners_mutex_);
    if (!known_stream_) return;
    for (const uint64_t id : engine_->Streams()) {
      if (known_stream_(id)) continue;
      const auto before = left_streams_.find(id);
      left[id] = before == left_streams_.end() ? 0
                 : before->second == 0         ? journal_->committed()
                                               : before->second;
    }
  }
  const bool idle = fair_queue_.empty() && fair_queue_.going_on() == 0 && queue_.size() == 0;
  for (auto at = left.begin(); at != left.end();) {
    const auto [id, entry] = *at;
    const bool judged = entry != 0 && (idle || judged_entry_ >= entry);
    if (judged) engine_->ForgetStream(id);
    at = judged ? left.erase(at) : std::next(at);
  }
  left_streams_ = std::move(left);
}

// Limits the state of runs that are over and may continue: the run seen longest ago is forgotten
// first, by finishing it again. This is an event, so a restart and an audit forget the run at the
// same place.
void Judge::ForgetRunsOver() {
  const std::vector<std::string> over = engine_->RunsOver();
  if (over.size() <= kMostRunsOver) return;
  std::vector<std::pair<int64_t, std::string>> by_age;
  {
    const MutexLock lock(mutex_);
    for (const std::string& run : over) by_age.emplace_back(runs_.LastSeen(run), run);
  }
  std::sort(by_age.begin(), by_age.end());
  by_age.resize(over.size() - kMostRunsOver);
  for (const auto& [seen, run] : by_age) {
    if (fair_queue_.Busy(run) || fair_queue_.Urgent(run)) continue;
    v1::JudgeEvent event;
    event.mutable_run_finished()->set_run(run);
    PushEvent(std::move(event));
  }
}

// Timer decisions go before the waiting work of their run, since they were made before it was
// judged. If reports of a run have waited for long, nothing is decided about it until they are
// judged.
void Judge::HandleTimers(JudgeQueue::Clock::time_point now) {
  awake_.Look(now, !queue_.held());
  const RunTable::Skip skip = [this, now](const std::string& run) {
    return fair_queue_.WaitsSince(run) < now - kLag;
  };
  CloseOverTheSlow(skip);
  ForgetStreams(now);
  std::vector<v1::RanksGone> gone;
  std::vector<std::string> ended, greeted, awaited, bad;
  {
    const MutexLock lock(mutex_);
    awaited = runs_.TakeAwaited(awake_.At(now), kAwaitQuietly);
    gone = runs_.TakeGone(awake_.At(now), skip);
    ended = runs_.TakeEnded(skip, &greeted);
    bad = runs_.TakeBadEnds(awake_.At(now), skip);
  }
  for (const std::string& line : awaited) LogInfo("{}", line);
  for (v1::RanksGone& ranks : gone) {
    v1::JudgeEvent event;
    *event.mutable_ranks_gone() = std::move(ranks);
    PushEvent(std::move(event));
  }
  for (const std::string& run : bad) {
    v1::JudgeEvent event;
    event.mutable_ended()->set_run(run);
    PushEvent(std::move(event));
  }
  for (const std::string& run : greeted) OnRunOver(run);
  for (const std::string& run : ended) {
    v1::JudgeEvent event;
    event.mutable_run_finished()->set_run(run);
    PushEvent(std::move(event));
  }
  if (now >= next_look_) {
    next_look_ = now + kLookPeriod;
    PartWithRuns();
    ForgetRunsOver();
    std::vector<v1::StepsStopped> stopped;
    for (v1::RanksHung& hung : liveness_.Look(now, &stopped)) {
      v1::JudgeEvent event;
      *event.mutable_hung() = std::move(hung);
      PushEvent(std::move(event));
    }
    for (v1::StepsStopped& steps : stopped) {
      v1::JudgeEvent event;
      *event.mutable_stopped() = std::move(steps);
      PushEvent(std::move(event));
    }
  }
  for (v1::IncidentUpdate& update : incident_table_->SilencesOver(static_cast<int64_t>(UnixNs()))) {
    v1::JudgeEvent event;
    *event.mutable_incident() = std::move(update);
    const std::string run = RunOf(event);
    if (!fair_queue_.Busy(run) && !fair_queue_.Urgent(run)) PushEvent(std::move(event));
  }
}

// ---- limit of runs that are known and have no connected process ---------------------------------

void Judge::PartWithRuns() {
  EndDisconnected();
  ForgetLongOver();
  ForgetIncidents();
}

// Returns false if evidence of the run waits to be judged, or if the run is in quarantine.
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

// Uses events, so that incidents end at the same places after a restart.
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
  edits_.Forget(run);
  over_runs_.Forgotten(run, JudgeQueue::Clock::now());
}

// If a run has started again since then, these belong to it.
void Judge::ForgetIncidents() {
  const MutexLock lock(mutex_);
  for (const std::string& run : over_runs_.TakeForgotten(JudgeQueue::Clock::now())) {
    if (runs_.LastSeen(run) == 0) incident_table_->Forget(run);
  }
}

}  // namespace plumbline::server
