// Runs that the judge leaves out, and the effect of a person's decision about them.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/processes/processes.h"
#include "rules/engine/close_events.h"
#include "rules/engine/refused.h"
#include "server/judge/judge.h"
#include "server/process/log.h"
#include "server/stream/batch_checks.h"

namespace plumbline::server {
namespace {

// Limit of a retry's slice; other runs are judged between two slices.
constexpr std::chrono::milliseconds kSlice{20};
constexpr std::chrono::milliseconds kReadWait{2}, kCheckpointWait{20};
constexpr std::chrono::seconds kCheckpointRetry{2};

v1::Verdict VerdictOf(const v1::QuarantinedRun& run) {
  return analysis::QuarantineVerdict(run.run(), run.reason(), run.entry());
}

uint64_t ItemsOf(const v1::Batch& batch) {
  auto items = static_cast<uint64_t>(batch.evidence_size());
  for (const v1::SeriesRows& rows : batch.series()) items += rules::CountPresent(rows);
  return items;
}

}  // namespace

// Returns true if all runs of the batch are in quarantine, so that it is not judged.
bool Judge::SetAside(uint64_t entry, const ParsedBatch& parsed,
                     const std::vector<std::string>& runs) {
  if (quarantine_->held() == 0) return false;
  const auto held = std::count_if(runs.begin(), runs.end(), [&](const std::string& run) {
    if (!quarantine_->Holds(run)) return false;
    if (retry_ != nullptr && retry_->items != nullptr && retry_->items->run() == run)
      retry_->items->Defer({entry, parsed.batch, {}});
    return true;
  });
  if (static_cast<size_t>(held) < runs.size() || runs.empty()) return false;
  quarantine_->CountUnjudged(ItemsOf(*parsed.batch));
  return true;
}

void Judge::DeferEvent(uint64_t entry, const v1::JudgeEvent& event) {
  if (retry_ == nullptr || retry_->items == nullptr || event.has_suppressions()) return;
  if (!event.has_incident()) retry_->items->Defer({entry, nullptr, event});
}

// Reports runs put into quarantine, after the engine has finished with the work that caused it.
// During a replay no event may be written; then the runs are reported at its end.
void Judge::ReportHeld() {
  for (const v1::QuarantinedRun& run : std::exchange(worker().held, {})) {
    // a retry passes the run's steps to the store again, after those that it has
    store_->FinishRun(run.run());
    if (!catching_up_) KeepHeld(run);
  }
}

// Reports the runs that this start put into quarantine, and those that the earlier process could
// not report.
void Judge::ReportHeldBefore() {
  for (const v1::QuarantinedRun& run : quarantine_->List()) {
    if (run.dropped()) continue;
    if (incident_table_->IncidentOf(VerdictOf(run).finding().fingerprint()).empty()) KeepHeld(run);
  }
}

// Writes the incident to the journal, because no evidence leads to it.
void Judge::KeepHeld(const v1::QuarantinedRun& run) {
  v1::JudgeEvent event;
  *event.mutable_incident() = analysis::QuarantineUpdate(run.run(), run.reason(), run.entry());
  (void)KeepAndApply(std::move(event));
}

void Judge::UpdateRun(const std::string& run, v1::UpdateRunRequest::Action action,
                      const std::string& who, std::function<void(absl::Status)> done) {
  JudgeItem item;
  item.kind = JudgeItem::Kind::kTask;
  item.run = run;
  item.task = [this, run, action, who, done = std::move(done)] {
    const auto found = quarantine_->Find(run);
    if (!found) return done(Quarantine::NotHere(run));
    if (found->dropped())
      return done(absl::FailedPreconditionError(
          absl::StrCat("run \"", run, "\" was dropped: it is never judged again")));
    if (action == v1::UpdateRunRequest::ACTION_DROP) return DropRun(*found, who, done);
    if (action == v1::UpdateRunRequest::ACTION_RETRY) return RetryRun(*found, who, done);
    done(absl::InvalidArgumentError("expected an action, found none: retry or drop"));
  };
  Push(std::move(item));
}

void Judge::DropRun(const v1::QuarantinedRun& run, const std::string& who,
                    const std::function<void(absl::Status)>& done) {
  const absl::Status dropped = quarantine_->Drop(run.run());
  if (!dropped.ok()) return done(dropped);
  LogWarning("run {:?}: dropped by {:?}; its stored evidence is never judged", run.run(), who);
  if (retry_ != nullptr && retry_->run.run() == run.run())
    EndRetry(absl::AbortedError("the run was dropped in the meantime"));
  engine_->Drop(run.run());
  Acknowledge(run, who, "the run was dropped: it is never judged");
  done(absl::OkStatus());
}

// Records the decision in the incident's history, in addition to the log.
void Judge::Acknowledge(const v1::QuarantinedRun& run, const std::string& who,
                        const std::string& reason) {
  v1::JudgeEvent event;
  v1::IncidentUpdate& update = *event.mutable_incident();
  update.set_fingerprint(incident_table_->IncidentOf(VerdictOf(run).finding().fingerprint()));
  if (update.fingerprint().empty()) return;
  update.set_action(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  update.set_who(who);
  update.set_reason(reason);
  (void)KeepAndApply(std::move(event));
}

// ---- retry ----------------------------------------------------------------------------------

void Judge::RetryRun(const v1::QuarantinedRun& run, const std::string& who,
                     std::function<void(absl::Status)> done) {
  if (retry_ != nullptr) {
    return done(absl::UnavailableError(
        absl::StrCat("run \"", retry_->run.run(),
                     "\" is being judged again; try again when this has finished")));
  }
  LogInfo("run {:?}: judged again, requested by {:?}", run.run(), who);
  RunTable::Counted counted;
  {
    const MutexLock lock(mutex_);
    counted = runs_.TakeCounted(run.run());
    reports_.Forget(run.run());
  }
  engine_->Drop(run.run());
  retry_ = std::make_unique<Retry>();
  retry_->run = run;
  retry_->who = who;
  retry_->done = std::move(done);
  retry_->refused_before = counted.lost[rules::kRefusedLoss];
  retry_->counted = std::move(counted);
  const OpenRun nothing = [](const std::string&, uint64_t) -> absl::StatusOr<RunItems> {
    return absl::NotFoundError("no evidence is stored");
  };
  const uint64_t judged = fair_queue_.ThroughOf(run.run());
  retry_->items = std::make_unique<RunRetry>(run.run(), judged, std::max(judged, applied_event_),
                                             open_run_ ? open_run_ : nothing);
}

void Judge::JudgeRetried(uint64_t entry, std::shared_ptr<const v1::Batch> batch) {
  Quarantine::At(entry, true);
  worker().entry = entry;
  absl::Status added;
  threads_.WithTakeover([&] {
    added = AddToEngine(batch);
    store_->EndEntry(retry_->run.run());
  });
  ShowClosedStep(retry_->run.run());
  if (!added.ok()) {
    LogError("run {:?}: entry {}: refused by the rule engine: {}", retry_->run.run(), entry,
             std::string(added.message()));
  }
}

// Suppressions apply to all runs, so the present ones are used.
void Judge::JudgeRetried(uint64_t entry, const v1::JudgeEvent& event) {
  const std::string& run = retry_->run.run();
  if (event.has_stream_sets()) {
    auto declared = std::make_shared<v1::Batch>();
    declared->set_stream_id(event.stream_sets().stream_id());
    declared->add_sources()->set_run(run);
    *declared->mutable_series_sets() = event.stream_sets().sets();
    return JudgeRetried(entry, std::move(declared));
  }
  Quarantine::At(entry, true);
  worker().entry = entry;
  threads_.WithTakeover([&] {
    rules::ApplyCloses(event, run, engine_.get());
    if (event.has_hung() && event.hung().run() == run)
      engine_->Tell(run, rules::kHangRule, analysis::HangVerdict(event.hung()));
    if (event.run_finished().run() == run && event.has_run_finished()) store_->FinishRun(run);
    store_->EndEntry(run);
  });
  ShowClosedStep(run);
}

void Judge::JudgeRetried(const v1::ReadRunItem& item) {
  if (item.has_event()) return JudgeRetried(item.entry(), item.event());
  auto batch = std::make_shared<v1::Batch>();
  if (!batch->ParseFromString(item.batch()) || !CheckKept(*batch).ok()) {
    LogError("journal: entry {} cannot be judged", item.entry());
    return;
  }
  JudgeRetried(item.entry(), std::move(batch));
}

// Judges until the slice is over. If too much waits for the retry, judges it to the end.
void Judge::GoOnWithRetry() {
  if (retry_->items == nullptr) return ReleaseRetried();
  RunRetry& items = *retry_->items;
  const bool to_the_end = items.full();
  const auto until = JudgeQueue::Clock::now() + kSlice;
  Quarantine::Only(&items.run());
  worker().refused_before = &retry_->refused_before;
  auto next = RunRetry::Next::kItem;
  while (worker().held.empty() && next == RunRetry::Next::kItem &&
         (to_the_end || JudgeQueue::Clock::now() < until)) {
    v1::ReadRunItem item;
    threads_.WithTakeover([&] { next = items.Take(to_the_end, &item); });
    if (next == RunRetry::Next::kItem) JudgeRetried(item);
  }
  RunRetry::Deferred live;
  bool all = false;
  while (next == RunRetry::Next::kEnd && worker().held.empty() &&
         (to_the_end || JudgeQueue::Clock::now() < until)) {
    all = !items.TakeDeferred(&live);
    if (all) break;
    if (live.batch != nullptr) {
      JudgeRetried(live.entry, std::move(live.batch));
    } else {
      JudgeRetried(live.entry, live.event);
    }
  }
  Quarantine::Only(nullptr);
  worker().refused_before = nullptr;
  retry_->wake = JudgeQueue::Clock::now();
  if (next == RunRetry::Next::kNotYet) retry_->wake += kReadWait;
  if (!worker().held.empty()) {
    const std::string reason = worker().held.front().reason();
    ReportHeld();
    return EndRetry(absl::InternalError(absl::StrCat("still in quarantine: ", reason)));
  }
  if (!all) return;
  if (!items.status().ok()) {
    engine_->Drop(items.run());
    return EndRetry(items.status());
  }
  quarantine_->Rejoin(items.run());
  LogInfo("run {:?}: judged again from all its stored evidence", items.run());
  retry_->items.reset();
  ReleaseRetried();
}

// Removes the run from the quarantine on disk once a checkpoint contains what was judged, because a
// restart begins there.
void Judge::ReleaseRetried() {
  const auto now = JudgeQueue::Clock::now();
  if (now < retry_->wake) return;
  retry_->wake = now + kCheckpointWait;
  if (checkpointer_ != nullptr) {
    if (!retry_->handed_in) {
      if (checkpoints_.Request()) retry_->former_checkpoint = checkpointer_->last_unix_ns();
      return;
    }
    if (!checkpointer_->idle() || undecided_) return;
    if (checkpointer_->last_unix_ns() == retry_->former_checkpoint) {  // it could not be written
      retry_->handed_in = false;
      retry_->wake = now + kCheckpointRetry;
      return;
    }
  }
  if (auto s = quarantine_->Release(retry_->run.run()); !s.ok()) {
    LogError("{}", std::string(s.message()));
    retry_->wake = now + kCheckpointRetry;
    return;
  }
  Acknowledge(retry_->run, retry_->who, "the run was judged again");
  EndRetry(absl::OkStatus());
}

void Judge::EndRetry(const absl::Status& status) {
  if (!status.ok())
    LogWarning("run {:?}: not judged again: {}", retry_->run.run(), std::string(status.message()));
  if (!status.ok()) {
    const MutexLock lock(mutex_);
    runs_.KeepCounted(retry_->run.run(), retry_->counted);
  }
  const auto retry = std::move(retry_);
  retry->done(status);
}

}  // namespace plumbline::server
