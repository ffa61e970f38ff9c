#include "server/judge/judge.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "analysis/processes/processes.h"
#include "rules/engine/told_closes.h"
#include "server/process/log.h"
#include "server/stream/batch_checks.h"

namespace plumbline::server {
namespace {

// Ranks that are gone and runs that are over are looked for this often.
constexpr std::chrono::milliseconds kTimerPeriod{100};
constexpr std::chrono::milliseconds kLookPeriod{500};  // for ranks that stand still
constexpr std::chrono::seconds kDrainTime{5};
constexpr std::chrono::seconds kAwaitQuietly{3};  // ranks that are still to come
constexpr int64_t kLagNs = 1'000'000'000;  // what is older than that in the queue keeps words back

int64_t UnixNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

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

Judge::Judge(const JudgeOptions& options, IncidentBook* book, const GapBook* gaps,
             Counters* counters)
    : book_(book),
      gaps_(gaps),
      counters_(counters),
      store_(options.store),
      liveness_(options.hang),
      queue_(options.queue_bytes),
      streams_(options.max_streams),
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
                                                     IncidentBook* book, const GapBook* gaps,
                                                     Counters* counters) {
  std::unique_ptr<Judge> judge(new Judge(options, book, gaps, counters));
  rules::EngineConfig config = options.engine;
  config.hosted = true;
  auto engine =
      rules::Engine::Create(config, [j = judge.get()](const v1::Verdict& v) { j->OnVerdict(v); });
  if (!engine.ok()) return engine.status();
  judge->engine_ = std::move(*engine);
  judge->engine_->SetGuard(judge->quarantine_);
  judge->quarantine_->SetOnHeld(
      [j = judge.get()](const v1::QuarantinedRun& run) { j->newly_held_.push_back(run); });
  judge->engine_->SetOnSeries(
      [store = options.store](const rules::StepSeries& series) { store->AddSeries(series); });
  judge->engine_->SetOnLate(
      [j = judge.get()](const std::string& run, const std::string& cause, uint64_t items) {
        const MutexLock lock(j->mutex_);
        j->runs_.AddLate(run, cause, items);
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
  next_checkpoint_ = JudgeQueue::Clock::now() + checkpoint_interval_;
  catching_up_ = reader != nullptr;
  thread_ = std::thread([this, reader = std::move(reader), replay = std::move(replay)]() mutable {
    TellHeldBefore();
    if (reader == nullptr || JudgeAgain(replay, *reader)) {
      reader.reset();  // segments that retention takes must not be held open
      catching_up_ = false;
      TellFoundAgain();
      Loop();
    }
    HandInCheckpoint();
  });
  return absl::OkStatus();
}

Judge::~Judge() { Stop(); }

void Judge::Stop() {
  stop_by_ = JudgeQueue::Clock::now() + kDrainTime;
  queue_.Close();
  if (thread_.joinable()) thread_.join();
}

void Judge::Loop() {
  auto next_timers = JudgeQueue::Clock::now() + kTimerPeriod;
  for (;;) {
    JudgeItem item;
    const auto popped = queue_.Pop(WakeAt(next_timers), &item);
    if (popped == JudgeQueue::Popped::kClosed) return;
    judging_.Begin();
    if (popped == JudgeQueue::Popped::kItem) Handle(std::move(item));
    if (retry_ != nullptr) GoOnWithRetry(false);
    CheckpointIfDue();
    judging_.End();
    if (stopping()) {
      LogWarning("{} items were not judged before the server stopped", queue_.size());
      return;
    }
    const auto now = JudgeQueue::Clock::now();
    if (now < next_timers || undecided_) continue;
    HandleTimers(now);
    open_step_bytes_ = engine_->open_bytes();
    next_timers = now + kTimerPeriod;
  }
}

// ---- what a former process left ------------------------------------------------------------

// False: stopped before the end; the next start goes on.
bool Judge::JudgeAgain(const Replay& replay, JournalReader& reader) {
  const auto start = JudgeQueue::Clock::now();
  auto event = replay.events.begin();
  const auto apply_until = [&](uint64_t entry) {
    for (; event != replay.events.end() && event->event.after() < entry; ++event) {
      unix_ns_ = event->unix_ns;
      Apply(event->event.event());
      applied_event_ = event->number;
    }
  };
  uint64_t judged = 0;
  StoredEntry entry;
  for (;;) {
    const JournalReader::Result result = reader.Next(&entry);
    if (result == JournalReader::Result::kEnd) break;
    if (stop_by_.load() != JudgeQueue::Clock::time_point::max()) return false;
    if (result != JournalReader::Result::kEntry || entry.type != FrameType::kJournalBatch) continue;
    apply_until(entry.prefix.number);
    judging_.Begin();
    KeepReplayWithinBudget(event != replay.events.end());
    JudgeAgain(entry);
    ++judged;
    CheckpointIfDue();
    judging_.End();
  }
  apply_until(JournalReader::kAll);
  KeepWithinBudget();
  {
    const MutexLock lock(mutex_);
    runs_.DisconnectAll(Now());
  }
  const std::chrono::duration<double> took = JudgeQueue::Clock::now() - start;
  LogInfo("{} entries of the journal judged again in {:.3f} s", judged, took.count());
  return true;
}

// The former process may have died before it told anybody: of runs that go on.
void Judge::TellFoundAgain() {
  for (const auto& [fingerprint, finding] : std::exchange(found_again_, {})) {
    const bool over = [&, run = finding.site().run()] {
      const MutexLock lock(mutex_);
      return runs_.Ended(run);
    }();
    if (!over && on_finding_) on_finding_(finding);
  }
}

void Judge::JudgeAgain(const StoredEntry& entry) {
  auto batch = std::make_shared<v1::Batch>();
  const std::string_view body = entry.body();
  absl::Status whole = batch->ParseFromArray(body.data(), static_cast<int>(body.size()))
                           ? CheckKeptBatch(*batch)
                           : absl::DataLossError("no batch");
  if (!whole.ok()) {
    LogError("journal: entry {} cannot be judged: {:?}", entry.prefix.number,
             std::string(whole.message()));
    ++counters_->journal_lost;
    return;
  }
  batch->set_sequence(entry.prefix.sequence);
  unix_ns_ = entry.prefix.unix_ns;
  bytes_since_checkpoint_ += entry.payload.size();
  ParsedBatch parsed;
  parsed.batch = std::move(batch);
  HandleBatch(entry.prefix.number, entry.prefix.stream_id, parsed);
  judged_entry_ = entry.prefix.number;
}

// ---- as it happens -------------------------------------------------------------------------

void Judge::Decide(v1::JudgeEvent event, std::function<void(absl::Status)> done) {
  JudgeItem item;
  item.kind = JudgeItem::Kind::kDecision;
  item.event = std::move(event);
  item.decided = std::move(done);
  Push(std::move(item));
}

void Judge::Handle(JudgeItem item) {
  const auto now = Now();
  switch (item.kind) {
    case JudgeItem::Kind::kBatch:
      unix_ns_ = item.unix_ns;
      bytes_since_checkpoint_ += item.batch.bytes;
      HandleBatch(item.entry, item.stream_id, item.batch);
      judged_entry_ = item.entry;
      KeepWithinBudget();
      return;
    case JudgeItem::Kind::kConnected: {
      const MutexLock lock(mutex_);
      for (const v1::Source& s : *item.sources)
        runs_.Connected(item.stream_id, s, item.backlog, now, UnixNanos());
      return;
    }
    case JudgeItem::Kind::kBeat: {
      item.beat->on_its_way = false;  // what comes from now on is said by another one
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
      return;
    }
    case JudgeItem::Kind::kTask:
      item.task();
      return;
  }
}

void Judge::HandleBatch(uint64_t entry, uint64_t stream_id, const ParsedBatch& parsed) {
  const std::shared_ptr<const v1::Batch>& batch = parsed.batch;
  std::vector<std::string> runs;
  {
    const MutexLock lock(mutex_);
    runs_.Account(stream_id, *batch, parsed.unsent != 0, Now(), unix_ns_);
    runs = runs_.RunsOf(*batch);
  }
  streams_.Note(stream_id, batch->sequence());
  if (SetAside(entry, parsed, runs)) return;
  const auto items = static_cast<uint64_t>(batch->evidence_size());
  quarantine_->At(entry, catching_up_);
  store_->BeginEntry(entry);
  const absl::Status added = engine_->Add(batch);
  store_->EndEntry();
  if (!added.ok()) {
    counters_->engine_refused += items;
    LogWarning("{} evidence items refused by the rule engine: {}", items,
               std::string(added.message()));
  }
  TellHeld();
  for (const std::string& run : runs) SetClosedStep(run);
  CloseWhatWentOn();
}

void Judge::CloseWhatWentOn() {
  std::vector<RunTable::WentOn> list;
  {
    const MutexLock lock(mutex_);
    list = runs_.TakeWentOn();
  }
  for (const RunTable::WentOn& w : list) book_->WentOn(w.run, w.rule, w.why);
}

void Judge::SetClosedStep(const std::string& run) {
  if (!quarantine_->Holds(run)) ShowClosedStep(run);
}

void Judge::ShowClosedStep(const std::string& run) {
  const int64_t step = engine_->closed_step(run);
  book_->StepClosed(run, step);
  const MutexLock lock(mutex_);
  runs_.SetClosedStep(run, step);
}

// What is said of ranks and has not been judged yet, or is not read, stops the clock by which they
// are waited for.
void Judge::LookAtClock(JudgeQueue::Clock::time_point now) {
  const int64_t oldest = queue_.oldest_unix_ns();
  const bool behind = oldest != 0 && UnixNanos() - oldest > kLagNs;
  awake_.Look(now, !behind && !queue_.held());
}

void Judge::CloseOverTheSlow() {
  for (const std::string& run : engine_->Runs()) {
    for (const rules::Lag& lag : engine_->Lagging(run)) {
      v1::JudgeEvent event;
      const bool may = [&] {
        const MutexLock lock(mutex_);
        return runs_.MayClose(run, lag, event.mutable_steps_closed());
      }();
      if (may) (void)KeepAndApply(std::move(event));
    }
  }
}

void Judge::HandleTimers(JudgeQueue::Clock::time_point now) {
  LookAtClock(now);
  CloseOverTheSlow();
  std::vector<v1::RanksGone> gone;
  std::vector<std::string> ended, awaited, bad;
  {
    const MutexLock lock(mutex_);
    awaited = runs_.TakeAwaited(awake_.At(now), kAwaitQuietly);
    gone = runs_.TakeGone(awake_.At(now));
    ended = runs_.TakeEnded();
    bad = runs_.TakeBadEnds(awake_.At(now));
  }
  for (const std::string& line : awaited) LogInfo("{}", line);
  for (v1::RanksGone& ranks : gone) {
    v1::JudgeEvent event;
    *event.mutable_ranks_gone() = std::move(ranks);
    (void)KeepAndApply(std::move(event));
  }
  for (const std::string& run : bad) {
    v1::JudgeEvent event;
    event.mutable_ended()->set_run(run);
    (void)KeepAndApply(std::move(event));
  }
  for (const std::string& run : ended) {
    v1::JudgeEvent event;
    event.mutable_run_finished()->set_run(run);
    (void)KeepAndApply(std::move(event));
  }
  if (now >= next_look_) {
    next_look_ = now + kLookPeriod;
    for (v1::RanksHung& hung : liveness_.Look(now)) {
      v1::JudgeEvent event;
      *event.mutable_hung() = std::move(hung);
      (void)KeepAndApply(std::move(event));
    }
  }
  for (v1::IncidentUpdate& update : book_->SilencesOver(UnixNanos())) {
    v1::JudgeEvent event;
    *event.mutable_incident() = std::move(update);
    (void)KeepAndApply(std::move(event));
  }
}

// In the journal first, with the number of the last entry that was judged before it. An error means
// that the server stops: a restart will decide again.
absl::Status Judge::KeepAndApply(v1::JudgeEvent event) {
  if (event.has_suppressions() && engine_->SuppressionsAre(rules::FromMessage(event.suppressions()),
                                                           event.suppressions().today())) {
    return absl::OkStatus();  // nothing would change
  }
  event.set_unix_ns(UnixNanos());
  v1::JournalEvent kept;
  kept.set_after(judged_entry_);
  *kept.mutable_event() = event;
  JournalEntry entry;
  entry.type = FrameType::kJournalEvent;
  entry.body = WireBytes(kept.SerializeAsString());
  auto committed = journal_->AppendAndWait(std::move(entry));
  if (!committed.ok()) {
    undecided_ = true;
    return committed.status();
  }
  unix_ns_ = committed->unix_ns;
  Apply(event);
  applied_event_ = committed->number;
  return absl::OkStatus();
}

void Judge::Apply(const v1::JudgeEvent& event) {
  store_->BeginEntry(judged_entry_);
  quarantine_->At(judged_entry_, catching_up_);
  DeferEvent(event);
  rules::TellCloses(event, "", engine_.get());
  if (event.has_ranks_gone()) {
    LogGone(event.ranks_gone());
    for (const v1::Source& source : event.ranks_gone().sources()) SetClosedStep(source.run());
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
    store_->FinishRun(run);
    liveness_.Forget(run);
    LogInfo("run {:?}: over", run);
    const MutexLock lock(mutex_);
    runs_.SetEnded(run);
    runs_.SetAllClosed(run);
  }
  if (event.has_hung()) {
    engine_->Tell(event.hung().run(), rules::kHangRule, rules::HangVerdict(event.hung()));
    const MutexLock lock(mutex_);
    runs_.NoteHung(event.hung());
  }
  if (event.has_suppressions()) {
    engine_->SetSuppressions(rules::FromMessage(event.suppressions()),
                             event.suppressions().today());
    LogInfo("{} suppressions hold", event.suppressions().entries_size());
  }
  // It was checked before it was kept; what has happened since decides again when it is replayed.
  if (event.has_incident()) book_->Apply(event.incident()).IgnoreError();
  store_->EndEntry();
  TellHeld();
}

void Judge::OnVerdict(const v1::Verdict& verdict) {
  rules::Report::Change change;
  v1::Finding finding;
  {
    const MutexLock lock(mutex_);
    RunReport& run = reports_[verdict.site().run()];
    const uint64_t left_out = run.report.left_out();
    change = run.report.Add(verdict);
    left_out_ += run.report.left_out() - left_out;
    const bool ends = verdict.rule() == rules::kRunDiedRule;  // no word on what was computed
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
  const IncidentBook::Placed placed = book_->Put(finding, change.count);
  // Of many sites with one cause the one that shows for them is enough.
  const bool news = placed.shows;
  if (news && catching_up_) found_again_[finding.fingerprint()] = finding;
  if (news && !catching_up_ && on_finding_) on_finding_(finding);
  if (placed.opened || change.unsuppressed) {
    LogWarning("{}run {:?} {} {:?} step {}: {:?}", finding.suppressed() ? "suppressed: " : "",
               finding.site().run(), finding.rule(), finding.site().layer(),
               finding.site().step_first(), finding.title());
  }
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
    info.set_open_incidents(book_->OpenIn(info.run()));
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
