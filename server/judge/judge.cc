#include "server/judge/judge.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "analysis/processes/processes.h"
#include "base/clock.h"
#include "rules/engine/refused.h"
#include "server/process/log.h"
#include "server/stream/batch_checks.h"

namespace plumbline::server {
namespace {

// Limit for judging after SIGTERM. Entries that are not judged by then stay in the journal, and the
// next start judges them.
constexpr std::chrono::seconds kJudgeDrainTime{1};
int64_t UnixNanos() { return static_cast<int64_t>(UnixNs()); }

}  // namespace

Judge::Judge(const JudgeOptions& options, IncidentTable* incident_table, const GapTable* gaps,
             Counters* counters)
    : incident_table_(incident_table),
      gaps_(gaps),
      counters_(counters),
      store_(options.store),
      liveness_(options.hang, options.between_steps),
      queue_(options.queue_bytes),
      streams_(options.max_streams),
      max_runs_(options.max_runs),
      checkpoints_(options.checkpoint_bytes, options.checkpoint_interval),
      own_quarantine_(options.quarantine == nullptr
                          ? std::make_unique<Quarantine>("", [] { return UnixNanos(); })
                          : nullptr),
      quarantine_(options.quarantine == nullptr ? own_quarantine_.get() : options.quarantine),
      held_runs_({this, quarantine_, incident_table, options.store, &threads_, &checkpoints_,
                  options.open_run}),
      limits_(this, quarantine_, &held_runs_, options.open_bytes),
      runs_(options.grace, options.engine.window_steps) {}

absl::StatusOr<std::unique_ptr<Judge>> Judge::Create(const JudgeOptions& options,
                                                     IncidentTable* incident_table,
                                                     const GapTable* gaps, Counters* counters) {
  std::unique_ptr<Judge> judge(new Judge(options, incident_table, gaps, counters));
  rules::EngineConfig config = options.engine;
  config.hosted = true;
  auto engine =
      rules::Engine::Create(config, [j = judge.get()](const v1::Verdict& v) { j->OnVerdict(v); });
  if (!engine.ok()) return engine.status();
  judge->engine_ = std::move(*engine);
  judge->held_runs_.SetEngine(judge->engine_.get());
  judge->limits_.SetEngine(judge->engine_.get());
  judge->engine_->SetGuard(judge->quarantine_);
  judge->quarantine_->SetOnHeld(
      [j = judge.get()](const v1::QuarantinedRun& run) { j->worker().held.push_back(run); });
  judge->engine_->SetOnSeries([j = judge.get()](const rules::StepSeries& series) {
    j->store_->AddSeries(j->worker().entry, series);
  });
  judge->engine_->SetOnLate(
      [j = judge.get()](const std::string& run, const std::string& cause, uint64_t items) {
        const MutexLock lock(j->mutex_);
        j->runs_.AddLate(run, cause, items);
      });
  judge->engine_->SetOnLost(
      [j = judge.get()](const std::string& run, const std::string& cause, uint64_t items) {
        if (cause == rules::kRefusedLoss) j->CountRefused(items);
        const MutexLock lock(j->mutex_);
        j->runs_.AddLost(run, cause, items);
      });
  judge->engine_->SetOnWhole([j = judge.get()](const rules::RunSummary& run) {
    const MutexLock lock(j->mutex_);
    return j->reports_.NotLookedAtSince(run);
  });
  return judge;
}

absl::Status Judge::Start(Journal* journal, Checkpointer* checkpointer, Replay replay) {
  std::unique_ptr<JournalReader> reader;
  if (!replay.directory.empty()) {
    auto opened = JournalReader::Open(replay.directory, replay.from, replay.to);
    if (!opened.ok()) return opened.status();
    reader = std::move(*opened);
  }
  journal_ = journal;
  checkpointer_ = checkpointer;
  held_runs_.SetCheckpointer(checkpointer);
  judged_entry_ = replay.from - 1;
  next_timers_ = JudgeQueue::Clock::now();
  checkpoints_.Start(next_timers_);
  catching_up_ = reader != nullptr;
  auto left = std::make_shared<Replay>(std::move(replay));
  threads_.Start(
      [this, left, shared = std::shared_ptr<JournalReader>(std::move(reader))]() mutable {
        threads_.turn().Lock();
        worker().unix_ns = unix_ns_;
        if (shared == nullptr || JudgeAgain(*left, *shared)) {
          shared.reset();  // open segments would block retention
          NoteNames();
          fair_queue_.SetThrough(judged_entry_);
          catching_up_ = false;
          held_runs_.ReportEarlier();
          ReportFoundAgain();
          threads_.StartTakeover([this] { Loop(); });
          Loop();
        } else {
          HandInCheckpoint();
          threads_.turn().Unlock();
        }
      });
  return absl::OkStatus();
}

Judge::~Judge() { Stop(); }

void Judge::StopDeciding() {
  stop_by_ = JudgeQueue::Clock::now() + kJudgeDrainTime;
  decisions_.Close(kJudgeDrainTime / 2);
}

void Judge::Stop() {
  // The time limit began with StopDeciding, if that was called.
  stop_by_ = std::min(stop_by_.load(), JudgeQueue::Clock::now() + kJudgeDrainTime);
  queue_.Close();
  threads_.WaitForEnd();
}

// ---- live decisions -------------------------------------------------------------------------

void Judge::Decide(v1::JudgeEvent event, std::function<void(absl::Status)> done) {
  if (!decisions_.Enter()) {
    if (done) done(absl::UnavailableError("the server stops"));
    return;
  }
  JudgeItem item;
  item.kind = JudgeItem::Kind::kDecision;
  item.event = std::move(event);
  item.decided = std::move(done);
  Push(std::move(item));
}

void Judge::UpdateRun(const std::string& run, v1::UpdateRunRequest::Action action,
                      const std::string& who, std::function<void(absl::Status)> done) {
  JudgeItem item;
  item.kind = JudgeItem::Kind::kTask;
  item.run = run;
  item.task = [this, run, action, who, done = std::move(done)] {
    held_runs_.Update(run, action, who, done);
  };
  Push(std::move(item));
}

void Judge::Handle(JudgeItem& item, const std::vector<std::string>& runs) {
  const auto now = Now();
  switch (item.kind) {
    case JudgeItem::Kind::kBatch:
      unix_ns_ = worker().unix_ns = item.unix_ns;
      checkpoints_.Judged(item.batch.bytes);
      HandleBatch(item.entry, item.stream_id, item.batch, runs);
      return;
    case JudgeItem::Kind::kConnected: {
      const MutexLock lock(mutex_);
      for (const v1::Source& s : *item.sources)
        runs_.Connected(item.stream_id, s, item.backlog, now, UnixNanos());
      return;
    }
    case JudgeItem::Kind::kBeat: {
      item.beat->on_its_way = false;  // later heartbeats use another item
      const bool backlog = item.beat->backlog;
      const MutexLock lock(mutex_);
      for (const v1::Source& s : *item.sources) runs_.Beat(item.stream_id, s, backlog, now);
      return;
    }
    case JudgeItem::Kind::kDisconnected: {
      const MutexLock lock(mutex_);
      for (const v1::Source& s : *item.sources)
        runs_.Disconnected(item.stream_id, s, now, item.process_ended);
      return;
    }
    case JudgeItem::Kind::kDecision: {
      const absl::Status kept = KeepAndApply(std::move(item.event));
      if (item.decided) item.decided(kept);
      decisions_.Decided();
      return;
    }
    case JudgeItem::Kind::kTask:
      item.task();
      return;
  }
}

void Judge::HandleBatch(uint64_t entry, uint64_t stream_id, const ParsedBatch& parsed,
                        const std::vector<std::string>& runs) {
  const std::shared_ptr<const v1::Batch>& batch = parsed.batch;
  {
    const MutexLock lock(mutex_);
    runs_.Account(stream_id, *batch, parsed.unsent != 0, Now(), worker().unix_ns);
  }
  streams_.Note(stream_id, batch->sequence());
  if (held_runs_.SetAside(entry, parsed, runs)) return;
  worker().entry = entry;
  Quarantine::At(entry, catching_up_);
  absl::Status added;
  threads_.WithTakeover([&] {
    added = AddToEngine(batch);
    for (const std::string& run : runs) store_->EndEntry(run);
  });
  if (!added.ok())
    LogError("stream {:016x} batch {}: refused by the rule engine after it was acknowledged: {}",
             stream_id, batch->sequence(), std::string(added.message()));
  held_runs_.Report();
  for (const std::string& run : runs) SetClosedStep(run);
  CloseContinued(runs);
}

// Counts refused items. Items that a retry refuses again were counted when they were first refused.
void Judge::CountRefused(uint64_t items) {
  uint64_t* const known = worker().refused_before;
  const uint64_t again = known == nullptr ? 0 : std::min(*known, items);
  if (known != nullptr) *known -= again;
  counters_->engine_refused += items - again;
}

// Adds the batch to the engine. It passed CheckReceived or CheckKept. The sender got an
// acknowledgement, so items that the engine refuses are counted as lost.
absl::Status Judge::AddToEngine(const std::shared_ptr<const v1::Batch>& batch) {
  absl::Status added = engine_->AddChecked(batch);
  if (added.ok()) return added;
  if (const absl::Status counted = engine_->AddRefused(*batch); !counted.ok())
    LogError("its evidence cannot be counted: {}", std::string(counted.message()));
  return added;
}

void Judge::CloseContinued(const std::vector<std::string>& runs) {
  std::vector<RunTable::Continued> list;
  {
    const MutexLock lock(mutex_);
    list = runs_.TakeContinued(&runs);
  }
  for (const RunTable::Continued& w : list) incident_table_->Continued(w.run, w.rule, w.why);
}

void Judge::SetClosedStep(const std::string& run) {
  if (!quarantine_->Holds(run)) ShowClosedStep(run);
}

void Judge::ShowClosedStep(const std::string& run) {
  const int64_t step = engine_->closed_step(run);
  incident_table_->StepClosed(run, step);
  const MutexLock lock(mutex_);
  runs_.SetClosedStep(run, step);
}

RunTable::Counted Judge::TakeCounted(const std::string& run) {
  const MutexLock lock(mutex_);
  reports_.Forget(run);
  return runs_.TakeCounted(run);
}

void Judge::KeepCounted(const std::string& run, const RunTable::Counted& counted) {
  const MutexLock lock(mutex_);
  runs_.KeepCounted(run, counted);
}

CheckpointSchedule::At Judge::JudgedOf(const std::string& run) const {
  return {fair_queue_.ThroughOf(run), applied_event_};
}

// Reports that no process of the run exists any more.
void Judge::OnRunOver(const std::string& run) {
  liveness_.Forget(run);
  const MutexLock lock(owners_mutex_);
  if (on_over_) on_over_(run);
}

// May be called for several runs at the same time: each has a separate report, and locks guard what
// is shared.
void Judge::OnVerdict(const v1::Verdict& verdict) {
  rules::Report::Change change;
  v1::Finding finding;
  {
    const MutexLock lock(mutex_);
    change = reports_.Add(verdict);
    left_out_ = reports_.left_out();
    if (change.finding == nullptr) return;
    if (verdict.rule() == analysis::kRunDiedRule) {
      const auto& details = verdict.details().fields();
      const auto restarted = details.find("restarted");
      runs_.NoteDied(verdict.site().run(),
                     restarted != details.end() && restarted->second.bool_value());
    }
    finding = *change.finding;
  }
  const IncidentTable::Placed placed = incident_table_->Put(finding, change.count);
  // If many sites share a cause, only the incident's representative is reported.
  const bool news = placed.shows;
  if (news && catching_up_) found_again_[finding.fingerprint()] = finding;
  if (news && !catching_up_ && on_finding_) on_finding_(finding);
  if (!catching_up_ && on_found_) on_found_(finding, verdict.site());
  if (placed.opened || change.unsuppressed) {
    LogWarning("{}run {:?} {} {:?} step {}: {:?}", finding.suppressed() ? "suppressed: " : "",
               finding.site().run(), finding.rule(), finding.site().layer(),
               finding.site().step_first(), finding.title());
  }
}

int64_t Judge::unix_ns() const {
  const Worker* const mine = threads_.Mine();
  return mine != nullptr ? mine->unix_ns : unix_ns_.load();
}

std::vector<KnownRank> Judge::Ranks() const {
  const MutexLock lock(mutex_);
  return runs_.Ranks();
}

std::vector<KnownRank> Judge::RanksOf(const std::string& run,
                                      std::map<int, uint32_t>* worlds) const {
  const MutexLock lock(mutex_);
  return runs_.RanksOf(run, worlds);
}

std::vector<v1::RunInfo> Judge::Runs() const {
  std::vector<v1::RunInfo> list;
  {
    const MutexLock lock(mutex_);
    list = runs_.List();
  }
  for (v1::QuarantinedRun& run : quarantine_->List()) {
    auto info = std::find_if(list.begin(), list.end(),
                             [&](const v1::RunInfo& i) { return i.run() == run.run(); });
    if (info == list.end()) {
      info = list.emplace(list.end());
      info->set_run(run.run());
    }
    *info->mutable_quarantined() = std::move(run);
  }
  for (v1::RunInfo& info : list) {
    *info.mutable_labels() = LabelsOf(info.run());
    if (std::string owner = OwnerIn(info.labels()); !owner.empty())
      info.set_owner(std::move(owner));
    info.set_open_incidents(incident_table_->OpenIn(info.run()));
    info.set_series_not_judged(engine_->series_left_out(info.run()));
    for (const auto& [state, n] : liveness_.States(info.run(), JudgeQueue::Clock::now())) {
      (*info.mutable_liveness())[state] = n;
    }
    for (v1::Gap& gap : gaps_->Of(info.run())) *info.add_gaps() = std::move(gap);
  }
  return list;
}

RunKnown Judge::Known(const std::string& run) const {
  const MutexLock lock(mutex_);
  return runs_.Known(run);
}

std::map<std::string, Judge::Judged> Judge::JudgedByRun() const {
  const MutexLock lock(mutex_);
  return reports_.Counts();
}

v1::ListVerdictsResponse Judge::Verdicts(const std::string& run) const {
  v1::ListVerdictsResponse response;
  const MutexLock lock(mutex_);
  reports_.List(run, &response);
  for (const v1::RunInfo& info : runs_.List()) {
    if (run.empty() || run == info.run()) response.set_dropped(response.dropped() + info.lost());
  }
  return response;
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

}  // namespace plumbline::server
