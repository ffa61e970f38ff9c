#include "server/judge/judge.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "analysis/processes/processes.h"
#include "base/clock.h"
#include "rules/engine/close_events.h"
#include "rules/engine/refused.h"
#include "server/judge/judge_takeover.h"
#include "server/process/log.h"
#include "server/stream/batch_checks.h"

namespace plumbline::server {
namespace {

// Limit for judging after SIGTERM. What is not judged by then stays in the journal, and the next
// start judges it.
constexpr std::chrono::seconds kJudgeDrainTime{1};
constexpr size_t kMostLinesOfAll =
    1'000'000;                       // in the reports of all runs; beyond it a run has ...
constexpr size_t kFirstLines = 100;  // ... at most this many findings, and other lines

int64_t UnixNanos() { return static_cast<int64_t>(UnixNs()); }

void LogGone(const v1::RanksGone& gone) {
  const bool never_came = gone.cause() == v1::RanksGone::CAUSE_NEVER_CAME;
  const char* why = gone.cause() == v1::RanksGone::CAUSE_SILENT ? "nothing came of it"
                    : gone.cause() == v1::RanksGone::CAUSE_SERVER_AWAY
                        ? "it did not come back to this server"
                        : "no stream came back";
  for (const v1::Source& source : gone.sources()) {
    if (never_came) {
      LogWarning("run {:?}: ranks of its world of {} never came; steps close without them",
                 source.run(), source.world_size());
    } else {
      LogWarning("run {:?} rank {}: gone ({} within the grace period)", source.run(), source.rank(),
                 why);
    }
  }
}

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
      checkpoint_bytes_(options.checkpoint_bytes),
      checkpoint_interval_(options.checkpoint_interval),
      open_run_(options.open_run),
      own_quarantine_(options.quarantine == nullptr
                          ? std::make_unique<Quarantine>("", [] { return UnixNanos(); })
                          : nullptr),
      quarantine_(options.quarantine == nullptr ? own_quarantine_.get() : options.quarantine),
      runs_(options.grace, options.engine.window_steps),
      open_limit_(options.open_bytes) {}

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
  judge->engine_->SetGuard(judge->quarantine_);
  judge->quarantine_->SetOnHeld(
      [](const v1::QuarantinedRun& run) { worker_->held.push_back(run); });
  judge->engine_->SetOnSeries([store = options.store](const rules::StepSeries& series) {
    store->AddSeries(worker_->entry, series);
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
  judged_entry_ = replay.from - 1;
  next_timers_ = JudgeQueue::Clock::now();
  next_checkpoint_ = JudgeQueue::Clock::now() + checkpoint_interval_;
  catching_up_ = reader != nullptr;
  auto left = std::make_shared<Replay>(std::move(replay));
  StartThread([this, left, shared = std::shared_ptr<JournalReader>(std::move(reader))]() mutable {
    turn_lock_.Lock();
    worker_->unix_ns = unix_ns_;
    if (shared == nullptr || JudgeAgain(*left, *shared)) {
      shared.reset();  // open segments would block retention
      NoteNames();
      fair_queue_.SetThrough(judged_entry_);
      catching_up_ = false;
      TellHeldBefore();
      TellFoundAgain();
      StartTakeoverThread();
      Loop();
    } else {
      HandInCheckpoint();
      turn_lock_.Unlock();
    }
  });
  return absl::OkStatus();
}

Judge::~Judge() { Stop(); }

bool Judge::Deciding() const {
  const MutexLock lock(decisions_mutex_);
  return deciding_;
}

void Judge::Decided() {
  const MutexLock lock(decisions_mutex_);
  if (--decisions_ == 0) decisions_changed_.NotifyAll();
}

void Judge::StopDeciding() {
  stop_by_ = JudgeQueue::Clock::now() + kJudgeDrainTime;
  MutexLock lock(decisions_mutex_);
  deciding_ = false;
  decisions_changed_.WaitFor(lock, kJudgeDrainTime / 2,
                             [this]() PLUMB_REQUIRES(decisions_mutex_) { return decisions_ == 0; });
}

void Judge::Stop() {
  // The time limit began with StopDeciding, if that was called.
  stop_by_ = std::min(stop_by_.load(), JudgeQueue::Clock::now() + kJudgeDrainTime);
  queue_.Close();
  MutexLock lock(threads_mutex_);
  threads_changed_.Wait(lock, [this]() PLUMB_REQUIRES(threads_mutex_) { return threads_ == 0; });
}

// ---- live decisions -------------------------------------------------------------------------

void Judge::Decide(v1::JudgeEvent event, std::function<void(absl::Status)> done) {
  {
    MutexLock lock(decisions_mutex_);
    if (!deciding_) {
      lock.Unlock();
      if (done) done(absl::UnavailableError("the server stops"));
      return;
    }
    ++decisions_;
  }
  JudgeItem item;
  item.kind = JudgeItem::Kind::kDecision;
  item.event = std::move(event);
  item.decided = std::move(done);
  Push(std::move(item));
}

void Judge::Handle(JudgeItem& item, const std::vector<std::string>& runs) {
  const auto now = Now();
  switch (item.kind) {
    case JudgeItem::Kind::kBatch:
      unix_ns_ = worker_->unix_ns = item.unix_ns;
      bytes_since_checkpoint_ += item.batch.bytes;
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
      Decided();
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
    runs_.Account(stream_id, *batch, parsed.unsent != 0, Now(), worker_->unix_ns);
  }
  streams_.Note(stream_id, batch->sequence());
  if (SetAside(entry, parsed, runs)) return;
  worker_->entry = entry;
  Quarantine::At(entry, catching_up_);
  absl::Status added;
  WithTakeover([&] {
    added = AddToEngine(batch);
    for (const std::string& run : runs) store_->EndEntry(run);
  });
  if (!added.ok())
    LogError("stream {:016x} batch {}: refused by the rule engine after it was acknowledged: {}",
             stream_id, batch->sequence(), std::string(added.message()));
  TellHeld();
  for (const std::string& run : runs) SetClosedStep(run);
  CloseWhatWentOn(runs);
}

// Counts refused items. Items that a retry refuses again were counted when they were first refused.
void Judge::CountRefused(uint64_t items) {
  uint64_t* const known = worker_->refused_before;
  const uint64_t again = known == nullptr ? 0 : std::min(*known, items);
  if (known != nullptr) *known -= again;
  counters_->engine_refused += items - again;
}

// Adds the batch to the engine. The sender got an acknowledgement, so items that the engine refuses
// are counted as lost.
absl::Status Judge::AddToEngine(const std::shared_ptr<const v1::Batch>& batch) {
  absl::Status added = engine_->Add(batch);
  if (added.ok()) return added;
  if (const absl::Status counted = engine_->AddRefused(*batch); !counted.ok())
    LogError("its evidence cannot be counted: {}", std::string(counted.message()));
  return added;
}

void Judge::CloseWhatWentOn(const std::vector<std::string>& runs) {
  std::vector<RunTable::WentOn> list;
  {
    const MutexLock lock(mutex_);
    list = runs_.TakeWentOn(&runs);
  }
  for (const RunTable::WentOn& w : list) incident_table_->WentOn(w.run, w.rule, w.why);
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
  worker_->entry = entry;
  Quarantine::At(entry, catching_up_);
  DeferEvent(entry, event);
  std::set<std::string> runs;
  for (const v1::Source& source : event.ranks_gone().sources()) runs.insert(source.run());
  if (!event.has_ranks_gone() && !event.has_incident()) runs.insert(RunOf(event));
  WithTakeover([&] {
    rules::TellCloses(event, "", engine_.get());
    if (event.has_hung())
      engine_->Tell(event.hung().run(), rules::kHangRule, rules::HangVerdict(event.hung()));
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
    LogInfo("{} suppressions hold", event.suppressions().entries_size());
  }
  // It was checked before it was written; a replay applies it again in the same order.
  if (const auto opened = rules::QuarantineOpened(event)) {
    OnVerdict(*opened);
  } else if (event.has_incident()) {
    incident_table_->Apply(event.incident()).IgnoreError();
  }
  TellHeld();
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
    RunReport& run = reports_[verdict.site().run()];
    const uint64_t left_out = run.report.left_out();
    const size_t kept = run.report.size();
    if (kept_lines_ < kMostLinesOfAll) {
      run.report.Bound();
    } else {
      run.report.Bound(kFirstLines, kFirstLines);  // no run may use up the lines of another one
    }
    change = run.report.Add(verdict);
    kept_lines_ += run.report.size() - kept;
    left_out_ += run.report.left_out() - left_out;
    const bool ends = verdict.rule() == rules::kRunDiedRule;  // does not judge the computation
    if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE) {
      run.inconclusive += ends ? 0 : 1;
    } else if (!ends && verdict.rule().rfind("meta/", 0) != 0) {
      ++run.judged;
    }
    if (change.finding == nullptr) return;
    if (ends) {
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
  return worker_ != nullptr && worker_->judge == this ? worker_->unix_ns : unix_ns_.load();
}

std::vector<KnownRank> Judge::Ranks() const {
  const MutexLock lock(mutex_);
  return runs_.Ranks();
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
  std::map<std::string, Judged> out;
  const MutexLock lock(mutex_);
  for (const auto& [run, entry] : reports_) out[run] = {entry.judged, entry.inconclusive};
  return out;
}

v1::ListVerdictsResponse Judge::Verdicts(const std::string& run) const {
  v1::ListVerdictsResponse response;
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : reports_) {
    if (!run.empty() && run != name) continue;
    for (const v1::Verdict* verdict : entry.report.verdicts()) *response.add_verdicts() = *verdict;
    response.set_judged(response.judged() + entry.judged);
    response.set_inconclusive(response.inconclusive() + entry.inconclusive);
  }
  for (const v1::RunInfo& info : runs_.List()) {
    if (run.empty() || run == info.run()) response.set_dropped(response.dropped() + info.lost());
  }
  return response;
}

}  // namespace plumbline::server
