// What is decided by the clock.

#include <utility>

#include "base/clock.h"
#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kLookPeriod{500};  // for ranks that stand still
constexpr std::chrono::seconds kAwaitQuietly{3};       // ranks that are still to come
constexpr std::chrono::seconds kLag{1};  // what has waited so long keeps words of its run back

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

// Decisions go before what waits of their run, as they were made before it was heard. Of a run of
// which words have waited for long nothing is decided until they are heard.
void Judge::HandleTimers(JudgeQueue::Clock::time_point now) {
  awake_.Look(now, !queue_.held());
  const RunTable::Skip skip = [this, now](const std::string& run) {
    return fair_queue_.WaitsSince(run) < now - kLag;
  };
  CloseOverTheSlow(skip);
  std::vector<v1::RanksGone> gone;
  std::vector<std::string> ended, awaited, bad;
  {
    const MutexLock lock(mutex_);
    awaited = runs_.TakeAwaited(awake_.At(now), kAwaitQuietly);
    gone = runs_.TakeGone(awake_.At(now), skip);
    ended = runs_.TakeEnded(skip);
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
  for (const std::string& run : ended) {
    v1::JudgeEvent event;
    event.mutable_run_finished()->set_run(run);
    PushEvent(std::move(event));
  }
  if (now >= next_look_) {
    next_look_ = now + kLookPeriod;
    for (v1::RanksHung& hung : liveness_.Look(now)) {
      v1::JudgeEvent event;
      *event.mutable_hung() = std::move(hung);
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

}  // namespace plumbline::server
