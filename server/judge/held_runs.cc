#include "server/judge/held_runs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/processes/processes.h"
#include "rules/engine/close_events.h"
#include "rules/engine/refused.h"
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

uint64_t HeldItemsOf(const v1::Batch& batch) {
  auto items = static_cast<uint64_t>(batch.evidence_size());
  for (const v1::SeriesRows& rows : batch.series()) items += rules::CountPresent(rows);
  return items;
}

}  // namespace

HeldRuns::HeldRuns(Parts parts) : parts_(std::move(parts)) {}

bool HeldRuns::SetAside(uint64_t entry, const ParsedBatch& parsed,
                        const std::vector<std::string>& runs) {
  if (parts_.quarantine->held() == 0) return false;
  const auto held = std::count_if(runs.begin(), runs.end(), [&](const std::string& run) {
    if (!parts_.quarantine->Holds(run)) return false;
    if (retry_ != nullptr && retry_->items != nullptr && retry_->items->run() == run)
      retry_->items->Defer({entry, parsed.batch, {}});
    return true;
  });
  if (static_cast<size_t>(held) < runs.size() || runs.empty()) return false;
  parts_.quarantine->CountUnjudged(HeldItemsOf(*parsed.batch));
  return true;
}

void HeldRuns::Defer(uint64_t entry, const v1::JudgeEvent& event) {
  if (retry_ == nullptr || retry_->items == nullptr || event.has_suppressions()) return;
  if (!event.has_incident()) retry_->items->Defer({entry, nullptr, event});
}

void HeldRuns::Report() {
  for (const v1::QuarantinedRun& run : std::exchange(worker().held, {})) {
    // a retry passes the run's steps to the store again, after the steps that the store has
    parts_.store->FinishRun(run.run());
    if (!parts_.judging->catching_up()) Keep(run);
  }
}

void HeldRuns::ReportEarlier() {
  for (const v1::QuarantinedRun& run : parts_.quarantine->List()) {
    if (run.dropped()) continue;
    if (parts_.incidents->IncidentOf(VerdictOf(run).finding().fingerprint()).empty()) Keep(run);
  }
}

// Writes the incident to the journal, because no evidence leads to it.
void HeldRuns::Keep(const v1::QuarantinedRun& run) {
  v1::JudgeEvent event;
  *event.mutable_incident() = analysis::QuarantineUpdate(run.run(), run.reason(), run.entry());
  (void)parts_.judging->KeepAndApply(std::move(event));
}

void HeldRuns::Update(const std::string& run, v1::UpdateRunRequest::Action action,
                      const std::string& who, const Done& done) {
  const auto found = parts_.quarantine->Find(run);
  if (!found) return done(Quarantine::NotHere(run));
  if (found->dropped())
    return done(absl::FailedPreconditionError(
        absl::StrCat("run \"", run, "\" was dropped: it is never judged again")));
  if (action == v1::UpdateRunRequest::ACTION_DROP) return Drop(*found, who, done);
  if (action == v1::UpdateRunRequest::ACTION_RETRY) return BeginRetry(*found, who, done);
  done(absl::InvalidArgumentError("expected an action, found none: retry or drop"));
}

void HeldRuns::Drop(const v1::QuarantinedRun& run, const std::string& who, const Done& done) {
  const absl::Status dropped = parts_.quarantine->Drop(run.run());
  if (!dropped.ok()) return done(dropped);
  LogWarning("run {:?}: dropped by {:?}; its stored evidence is never judged", run.run(), who);
  EndRetryOf(run.run(), absl::AbortedError("the run was dropped in the meantime"));
  engine_->Drop(run.run());
  Acknowledge(run, who, "the run was dropped: it is never judged");
  done(absl::OkStatus());
}

// Records the decision in the incident's history, in addition to the log.
void HeldRuns::Acknowledge(const v1::QuarantinedRun& run, const std::string& who,
                           const std::string& reason) {
  v1::JudgeEvent event;
  v1::IncidentUpdate& update = *event.mutable_incident();
  update.set_fingerprint(parts_.incidents->IncidentOf(VerdictOf(run).finding().fingerprint()));
  if (update.fingerprint().empty()) return;
  update.set_action(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  update.set_who(who);
  update.set_reason(reason);
  (void)parts_.judging->KeepAndApply(std::move(event));
}

// ---- retry ----------------------------------------------------------------------------------

void HeldRuns::BeginRetry(const v1::QuarantinedRun& run, const std::string& who, const Done& done) {
  if (retry_ != nullptr) {
    return done(absl::UnavailableError(
        absl::StrCat("run \"", retry_->run.run(),
                     "\" is being judged again; try again when this has finished")));
  }
  LogInfo("run {:?}: judged again, requested by {:?}", run.run(), who);
  RunTable::Counted counted = parts_.judging->TakeCounted(run.run());
  engine_->Drop(run.run());
  retry_ = std::make_unique<Retry>();
  retry_->run = run;
  retry_->who = who;
  retry_->done = done;
  retry_->refused_before = counted.lost[rules::kRefusedLoss];
  retry_->counted = std::move(counted);
  const OpenRun nothing = [](const std::string&, uint64_t) -> absl::StatusOr<RunItems> {
    return absl::NotFoundError("no evidence is stored");
  };
  const auto [judged, event] = parts_.judging->JudgedOf(run.run());
  retry_->items = std::make_unique<RunRetry>(run.run(), judged, std::max(judged, event),
                                             parts_.open_run ? parts_.open_run : nothing);
}

void HeldRuns::JudgeBatch(uint64_t entry, std::shared_ptr<const v1::Batch> batch) {
  Quarantine::At(entry, true);
  worker().entry = entry;
  absl::Status added;
  parts_.threads->WithTakeover([&] {
    added = parts_.judging->AddToEngine(batch);
    parts_.store->EndEntry(retry_->run.run());
  });
  parts_.judging->ShowClosedStep(retry_->run.run());
  if (!added.ok()) {
    LogError("run {:?}: entry {}: refused by the rule engine: {}", retry_->run.run(), entry,
             std::string(added.message()));
  }
}

// Suppressions apply to all runs, so the present ones are used.
void HeldRuns::JudgeEvent(uint64_t entry, const v1::JudgeEvent& event) {
  const std::string& run = retry_->run.run();
  if (event.has_stream_sets()) {
    auto declared = std::make_shared<v1::Batch>();
    declared->set_stream_id(event.stream_sets().stream_id());
    declared->add_sources()->set_run(run);
    *declared->mutable_series_sets() = event.stream_sets().sets();
    return JudgeBatch(entry, std::move(declared));
  }
  Quarantine::At(entry, true);
  worker().entry = entry;
  parts_.threads->WithTakeover([&] {
    rules::ApplyCloses(event, run, engine_);
    if (event.has_hung() && event.hung().run() == run)
      engine_->Emit(run, rules::kHangRule, analysis::HangVerdict(event.hung()));
    if (event.run_finished().run() == run && event.has_run_finished()) parts_.store->FinishRun(run);
    parts_.store->EndEntry(run);
  });
  parts_.judging->ShowClosedStep(run);
}

void HeldRuns::JudgeStoredItem(const v1::ReadRunItem& item) {
  if (item.has_event()) return JudgeEvent(item.entry(), item.event());
  auto batch = std::make_shared<v1::Batch>();
  if (!batch->ParseFromString(item.batch()) || !CheckKept(*batch).ok()) {
    LogError("journal: entry {} cannot be judged", item.entry());
    return;
  }
  JudgeBatch(item.entry(), std::move(batch));
}

void HeldRuns::Continue() {
  if (retry_->items == nullptr) return Release();
  RunRetry& items = *retry_->items;
  const auto until = items.full() ? Clock::time_point::max() : Clock::now() + kSlice;
  Quarantine::Only(&items.run());
  worker().refused_before = &retry_->refused_before;
  const RunRetry::Next next = JudgeStored(until);
  const bool all = next == RunRetry::Next::kEnd && JudgeDeferred(until);
  Quarantine::Only(nullptr);
  worker().refused_before = nullptr;
  EndSlice(next, all);
}

// Judges the journal's items of the run, until the given time. Returns the last answer of the
// reader.
RunRetry::Next HeldRuns::JudgeStored(Clock::time_point until) {
  const bool to_the_end = until == Clock::time_point::max();
  auto next = RunRetry::Next::kItem;
  while (worker().held.empty() && next == RunRetry::Next::kItem && Clock::now() < until) {
    v1::ReadRunItem item;
    parts_.threads->WithTakeover([&] { next = retry_->items->Take(to_the_end, &item); });
    if (next == RunRetry::Next::kItem) JudgeStoredItem(item);
  }
  return next;
}

// Judges the items that arrived during the retry, until the given time. Returns true if none is
// left.
bool HeldRuns::JudgeDeferred(Clock::time_point until) {
  RunRetry::Deferred live;
  while (worker().held.empty() && Clock::now() < until) {
    if (!retry_->items->TakeDeferred(&live)) return true;
    if (live.batch != nullptr) {
      JudgeBatch(live.entry, std::move(live.batch));
    } else {
      JudgeEvent(live.entry, live.event);
    }
  }
  return false;
}

// Ends the retry if the run failed again or if all was judged.
void HeldRuns::EndSlice(RunRetry::Next next, bool all) {
  const RunRetry& items = *retry_->items;
  retry_->wake = Clock::now();
  if (next == RunRetry::Next::kNotYet) retry_->wake += kReadWait;
  if (!worker().held.empty()) {
    const std::string reason = worker().held.front().reason();
    Report();
    return EndRetry(absl::InternalError(absl::StrCat("still in quarantine: ", reason)));
  }
  if (!all) return;
  if (!items.status().ok()) {
    engine_->Drop(items.run());
    return EndRetry(items.status());
  }
  parts_.quarantine->Rejoin(items.run());
  LogInfo("run {:?}: judged again from all its stored evidence", items.run());
  retry_->items.reset();
  Release();
}

// Removes the run from the quarantine on disk when a checkpoint contains its judged items, because
// a restart begins at that checkpoint.
void HeldRuns::Release() {
  const auto now = Clock::now();
  if (now < retry_->wake) return;
  retry_->wake = now + kCheckpointWait;
  if (checkpointer_ != nullptr) {
    if (!retry_->handed_in) {
      if (parts_.checkpoints->Request()) retry_->former_checkpoint = checkpointer_->last_unix_ns();
      return;
    }
    if (!checkpointer_->idle() || parts_.judging->undecided()) return;
    if (checkpointer_->last_unix_ns() == retry_->former_checkpoint) {  // it could not be written
      retry_->handed_in = false;
      retry_->wake = now + kCheckpointRetry;
      return;
    }
  }
  if (auto s = parts_.quarantine->Release(retry_->run.run()); !s.ok()) {
    LogError("{}", std::string(s.message()));
    retry_->wake = now + kCheckpointRetry;
    return;
  }
  Acknowledge(retry_->run, retry_->who, "the run was judged again");
  EndRetry(absl::OkStatus());
}

void HeldRuns::CheckpointHandedIn() {
  if (retry_ != nullptr) retry_->handed_in = true;
}

void HeldRuns::EndRetryOf(const std::string& run, const absl::Status& status) {
  if (retry_ != nullptr && retry_->run.run() == run) EndRetry(status);
}

void HeldRuns::EndRetry(const absl::Status& status) {
  if (!status.ok()) {
    LogWarning("run {:?}: not judged again: {}", retry_->run.run(), std::string(status.message()));
    parts_.judging->KeepCounted(retry_->run.run(), retry_->counted);
  }
  const auto retry = std::move(retry_);
  retry->done(status);
}

}  // namespace plumbline::server
