// Applies a decision that is in the journal.

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "analysis/processes/processes.h"
#include "rules/engine/close_events.h"
#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

void LogGone(const v1::RanksGone& gone) {
  const bool never_came = gone.cause() == v1::RanksGone::CAUSE_NEVER_CAME;
  const char* why = gone.cause() == v1::RanksGone::CAUSE_SILENT ? "nothing was received from it"
                    : gone.cause() == v1::RanksGone::CAUSE_SERVER_AWAY
                        ? "it did not reconnect to this server"
                        : "no stream came back";
  for (const v1::Source& source : gone.sources()) {
    if (never_came) {
      LogWarning("run {:?}: ranks of its world of {} never connected; steps close without them",
                 source.run(), source.world_size());
    } else {
      LogWarning("run {:?} rank {}: gone ({} within the grace period)", source.run(), source.rank(),
                 why);
    }
  }
}

}  // namespace

// Returns the run that an event belongs to; empty if it belongs to several or to none.
std::string Judge::RunOf(const v1::JudgeEvent& event) const {
  if (event.has_ranks_gone() && !event.ranks_gone().sources().empty())
    return event.ranks_gone().sources(0).run();
  if (event.has_run_finished()) return event.run_finished().run();
  if (event.has_hung()) return event.hung().run();
  if (event.has_stopped()) return event.stopped().run();
  if (event.has_steps_closed()) return event.steps_closed().run();
  if (event.has_make_room()) return event.make_room().run();
  if (event.has_ended()) return event.ended().run();
  if (event.has_incident()) {
    if (const auto edit = RunEdits::EditOf(event.incident())) return edit->run();
    const auto incident = incident_table_->Get(event.incident().fingerprint());
    if (incident.ok()) return incident->incident.finding().site().run();
  }
  return "";
}

// Returns the entry up to which the run has been judged.
uint64_t Judge::EntryOf(const std::string& run) const {
  if (!catching_up_) return fair_queue_.ThroughOf(run);
  const auto ahead = restored_ahead_.find(run);
  return ahead == restored_ahead_.end() ? judged_entry_.load()
                                        : std::max(judged_entry_.load(), ahead->second);
}

void Judge::Apply(uint64_t entry, const v1::JudgeEvent& event) {
  worker().entry = entry;
  Quarantine::At(entry, catching_up_);
  held_runs_.Defer(entry, event);
  std::set<std::string> runs;
  for (const v1::Source& source : event.ranks_gone().sources()) runs.insert(source.run());
  if (!event.has_ranks_gone() && !event.has_incident()) runs.insert(RunOf(event));
  threads_.WithTakeover([&] {
    rules::ApplyCloses(event, "", engine_.get());
    if (event.has_hung())
      engine_->Emit(event.hung().run(), rules::kHangRule, analysis::HangVerdict(event.hung()));
    if (event.has_run_finished()) store_->FinishRun(event.run_finished().run());
    for (const std::string& run : runs) store_->EndEntry(run);
  });
  if (event.has_ranks_gone()) {
    LogGone(event.ranks_gone());
    for (const std::string& run : runs) SetClosedStep(run);
    const MutexLock lock(mutex_);
    runs_.SetGone(event.ranks_gone());
  }
  if (event.has_ended()) {
    const MutexLock lock(mutex_);
    runs_.SetEndsJudged(event.ended().run());
  }
  if (event.has_steps_closed()) SetClosedStep(event.steps_closed().run());
  if (event.has_run_finished()) {
    const std::string& run = event.run_finished().run();
    if (event.run_finished().forgotten() || !KeepPlace(run)) OnRunOver(run);
    LogInfo("run {:?}: over", run);
    const bool forgotten = !engine_->Knows(run);
    const MutexLock lock(mutex_);
    runs_.SetEnded(run);
    runs_.SetAllClosed(run);
    if (forgotten) runs_.SetForgotten(run);
  }
  if (event.run_finished().forgotten()) ForgetRun(event.run_finished().run());
  if (event.has_hung()) {
    const MutexLock lock(mutex_);
    runs_.NoteHung(event.hung());
  }
  if (event.has_stopped()) {
    const MutexLock lock(mutex_);
    runs_.NoteStopped(event.stopped(), event.unix_ns());
  }
  if (event.has_suppressions()) {
    engine_->SetSuppressions(rules::FromMessage(event.suppressions()),
                             event.suppressions().today());
    LogInfo("{} suppressions are in force", event.suppressions().entries_size());
  }
  // It was checked before it was written; a replay applies it again in the same order.
  if (const auto opened = analysis::QuarantineOpened(event)) {
    OnVerdict(*opened);
  } else if (const auto edit = RunEdits::EditOf(event.incident())) {
    {
      const MutexLock lock(mutex_);
      edits_.Apply(*edit, event.incident().who(), event.unix_ns());
      ++edits_made_;
    }
    incident_table_->Wake();
  } else if (event.has_incident()) {
    incident_table_->Apply(event.incident()).IgnoreError();
  }
  held_runs_.Report();
}

}  // namespace plumbline::server
