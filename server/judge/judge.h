// Feeds the rule engine with the journal's entries, turns verdicts into incidents and keeps the
// data for the query service.
//
// Each run's entries are judged in the journal's order; runs do not wait for each other
// (docs/decisions/0036). One judging thread at a time holds the turn (judge_threads.h) and begins
// the next work (fair_queue.h). Every member without a separate lock is used only with the turn.
// While the engine judges a run, which takes by far the longest, others may take the turn over: if
// it takes long, another thread continues with other runs. Functions that the engine calls
// meanwhile (OnVerdict, the store, the quarantine, RunTable::AddLate) have locks.
//
// Everything that decides a verdict has a place in the journal: batches by their numbers, and
// decisions by the clock or from outside as events, which are committed first and then applied.
// After a restart the same entries and events give the same verdicts.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/query.pb.h"
#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"
#include "server/incidents/incident_table.h"
#include "server/incidents/run_edits.h"
#include "server/journal/checkpointer.h"
#include "server/journal/gap_table.h"
#include "server/journal/journal.h"
#include "server/journal/journal_scan.h"
#include "server/journal/stream_positions.h"
#include "server/judge/awake_clock.h"
#include "server/judge/checkpoint_schedule.h"
#include "server/judge/decision_gate.h"
#include "server/judge/fair_queue.h"
#include "server/judge/held_runs.h"
#include "server/judge/judge_threads.h"
#include "server/judge/later_decisions.h"
#include "server/judge/memory_budget.h"
#include "server/judge/memory_limits.h"
#include "server/judge/over_runs.h"
#include "server/judge/quarantine.h"
#include "server/judge/run_reports.h"
#include "server/judge/stream_marks.h"
#include "server/process/counters.h"
#include "server/store/store.h"
#include "server/stream/judge_queue.h"
#include "server/stream/known_name.h"
#include "server/stream/liveness.h"
#include "server/stream/run_table.h"

namespace plumbline::server {

struct JudgeOptions {
  rules::EngineConfig engine;
  std::chrono::nanoseconds grace = std::chrono::seconds(30);
  // a rank may make no progress for this long
  std::chrono::nanoseconds hang = std::chrono::seconds(10);
  // a run may begin no step for this long
  std::chrono::nanoseconds between_steps = std::chrono::seconds(60);
  size_t queue_bytes = 256u << 20;
  size_t max_streams = 20000;  // that a checkpoint knows
  // Limit of runs that are over; the oldest beyond it are forgotten. The same limit applies to runs
  // that have lost their connections; those beyond it are over at once.
  size_t max_runs = 10'000;
  uint64_t open_bytes = 0;           // limit of the open steps of all runs, and of the rules'
                                     // state; 0: no limit
  Store* store = nullptr;            // gets closed steps; must outlive the judge
  Quarantine* quarantine = nullptr;  // must outlive it; null: a quarantine that is not stored
  OpenRun open_run;                  // opens the stored items of a run; empty: nothing is stored
  // A checkpoint is due after this many judged bytes, or after this time, whichever is first.
  uint64_t checkpoint_bytes = 256u << 20;
  std::chrono::nanoseconds checkpoint_interval = std::chrono::seconds(60);
};

// The entries and events that an earlier process left unjudged.
struct Replay {
  std::string directory;  // of the journal; empty: nothing is left
  uint64_t from = 1;      // entries `from` to `to`, both included
  uint64_t to = 0;
  std::vector<StoredEvent> events;  // that were not applied, in order
};

// Thread-safe, except Create, Start and destruction.
class Judge : private HeldRuns::Judging, private MemoryLimits::Judging {
 public:
  // Returns InvalidArgument if the engine refuses its configuration. All pointers must outlive the
  // judge.
  static absl::StatusOr<std::unique_ptr<Judge>> Create(const JudgeOptions& options,
                                                       IncidentTable* incident_table,
                                                       const GapTable* gaps, Counters* counters);
  ~Judge() override;

  // AheadOf returns the runs that a checkpoint knows beyond its entry, and up to which entry.
  // Restore takes over the state of another judge. If it returns an error, this judge is still
  // empty. Call before Start.
  static std::map<std::string, uint64_t> AheadOf(const Checkpoint& checkpoint);
  absl::Status Restore(const Checkpoint& checkpoint);

  // Judges the entries in `replay`, then pushed items. Call once. `journal` and `checkpointer` must
  // outlive the judge. If `checkpointer` is null, no checkpoint is written. Returns an error if the
  // entries to judge again cannot be read.
  absl::Status Start(Journal* journal, Checkpointer* checkpointer, Replay replay);

  // See JudgeQueue. Push a batch once the journal holds it, in order of the numbers.
  bool Admit(const std::string& run, size_t bytes, std::function<void()> resume) {
    return queue_.Admit(run, bytes, std::move(resume));
  }
  void Push(JudgeItem item) { queue_.Push(std::move(item)); }
  void Hold(bool held) { queue_.Hold(held); }
  // Returns the bytes that the open steps of all runs held a moment ago.
  uint64_t open_step_bytes() const { return open_step_bytes_; }
  uint64_t open_step_limit() const { return limits_.limit(); }  // 0: none
  // Returns the bytes of the rules' state of all runs, and how many rules stopped judging a run for
  // lack of memory.
  uint64_t rule_bytes() const { return rule_bytes_; }
  uint64_t rules_set_aside() const { return rules_set_aside_; }
  uint64_t series_left_out() const { return series_left_out_; }
  // Returns how often the oldest steps of a run were closed because all runs together held too
  // much.
  uint64_t made_room() const { return limits_.made_room(); }
  // Returns the number of findings and lines that did not fit into a run's report.
  uint64_t left_out() const { return left_out_; }
  // Returns the longest time that a judging thread has spent on its current item or replayed entry
  // (JudgeThreads::LongestWork).
  std::chrono::nanoseconds judging_for() const { return threads_.LongestWork(); }

  // Queues a decision that was made outside. It has a place among the batches and is journalled
  // like them. `done` runs on a judging thread after it was applied, or with the reason why it
  // could not be written. If the judge stops before, `done` never runs.
  void Decide(v1::JudgeEvent event, std::function<void(absl::Status)> done);

  // Applies a person's decision about a run in quarantine. `done` is called as for Decide; for a
  // retry, when all stored items of the run have been judged. The person's name is written to the
  // log and to the incident's history.
  void UpdateRun(const std::string& run, v1::UpdateRunRequest::Action action,
                 const std::string& who, std::function<void(absl::Status)> done);
  const Quarantine& quarantine() const { return *quarantine_; }

  // Refuses all further decisions, by the clock or by people (Unavailable). Earlier decisions are
  // written when this returns. Call before the journal is stopped, so that a last checkpoint can be
  // taken.
  void StopDeciding();
  // Judges pushed items for a short limited time, then stops. Does not finish runs, because they
  // may continue with another server. The journal must have been stopped.
  void Stop();

  // Sets a callback that runs on a judging thread for each finding that represents its incident,
  // when it first does or has become stronger. It must be quick. Findings of replayed entries are
  // reported afterwards, if their run is not over. Call before Start.
  void SetOnFinding(std::function<void(const v1::Finding&)> on_finding) {
    on_finding_ = std::move(on_finding);
  }

  // Sets a callback that runs on a judging thread for each finding of a run in progress, with the
  // merged finding. It must be quick. It is not called for replayed entries. Call before Start.
  void SetOnFound(
      std::function<void(const v1::Finding& merged, const v1::FindingSite& now)> on_found) {
    on_found_ = std::move(on_found);
  }

  // Sets the function that returns the owner of a run. If all runs together hold too much, the
  // owner furthest above its share must free memory.
  using Owner = RunOwner;
  void SetOwners(MemoryBudget::OwnerOf owner_of);
  // Sets a callback that runs on the judging thread for each run that is over, when its names are
  // no longer kept.
  void SetOnOver(std::function<void(const std::string& run)> on_over);
  // Sets the function that returns true if the stream table knows a stream. The engine keeps the
  // series sets of known streams, because their batches may arrive at any time, even after their
  // runs were over. If empty, all sets are kept.
  void SetKnownStreams(std::function<bool(uint64_t stream_id)> known);
  // Takes the sets that the journal knows of streams. A checkpoint of an older version lost them
  // with the stream's run, and the stream does not declare them again. Call after Restore, before
  // Start.
  void DeclareSets(const StreamPositions& streams);
  // Returns the names that the engine knew once it had replayed the earlier process's entries. Call
  // once.
  std::vector<KnownName> TakeNames();

  // The streams update it, the judge queries it.
  Liveness& liveness() { return liveness_; }

  std::vector<v1::RunInfo> Runs() const;
  RunKnown Known(const std::string& run) const;
  // Returns the ranks of runs in progress, as of the judged entries.
  std::vector<KnownRank> Ranks() const;
  // Returns what people added to a run, and the runs that they deleted.
  v1::RunLabels LabelsOf(const std::string& run) const;
  std::set<std::string> DeletedRuns() const;
  uint64_t edits() const { return edits_made_; }  // grows with each edit of a run
  Liveness::Pace PaceOf(const std::string& run, uint32_t attempt) const {
    return liveness_.PaceOf(run, attempt);
  }
  // Returns the ranks of one run (RunTable::RanksOf).
  std::vector<KnownRank> RanksOf(const std::string& run, std::map<int, uint32_t>* worlds) const;
  v1::ListVerdictsResponse Verdicts(const std::string& run) const;
  using Judged = RunReports::Judged;
  // Returns only the counts of Verdicts, of every run that was judged.
  std::map<std::string, Judged> JudgedByRun() const;
  size_t queued() const { return queue_.size(); }
  size_t queued_bytes() const { return queue_.bytes(); }
  int64_t oldest_queued_unix_ns() const { return queue_.oldest_unix_ns(); }
  // Returns the number up to which the entries of every run have been judged; some runs may be
  // further.
  uint64_t judged_entry() const { return judged_entry_; }
  // Returns true while the entries of an earlier process are being judged.
  bool catching_up() const override { return catching_up_; }
  // Returns the time of the current work: of receipt, or of the event. For display, not for
  // verdicts. On a judging thread it belongs to that thread's work; on other threads, to the last
  // work judged.
  int64_t unix_ns() const;

 private:
  Judge(const JudgeOptions& options, IncidentTable* incident_table, const GapTable* gaps,
        Counters* counters);

  // For held_runs_ and limits_.
  absl::Status KeepAndApply(v1::JudgeEvent event) override;
  // For held_runs_.
  absl::Status AddToEngine(const std::shared_ptr<const v1::Batch>& batch) override;
  void ShowClosedStep(const std::string& run) override PLUMB_EXCLUDES(mutex_);
  RunTable::Counted TakeCounted(const std::string& run) override PLUMB_EXCLUDES(mutex_);
  void KeepCounted(const std::string& run, const RunTable::Counted& counted) override
      PLUMB_EXCLUDES(mutex_);
  CheckpointSchedule::At JudgedOf(const std::string& run) const override;
  bool undecided() const override { return undecided_; }
  // For limits_.
  void DoFirst(const std::string& run, std::function<void()> task) override;
  bool Busy(const std::string& run) const override { return fair_queue_.Busy(run); }
  bool may_decide() const override { return !undecided_ && decisions_.open(); }
  RunOwner OwnerOf(const std::string& run) const override;

  using Worker = JudgeThreads::Worker;
  Worker& worker() const { return *threads_.Mine(); }

  // judge_loop.cc
  void Loop();
  bool Step();
  bool Do(FairQueue::Begun begun);
  bool DoRetry();
  void BeginWork();
  bool EndWork();
  void TakeIn();
  void TakeIn(JudgeItem item);
  FairQueue::Work WorkOf(JudgeItem item) const;
  bool WaitForWork();
  bool DecideForAll();
  FairQueue::Which Which() const;
  bool RecordAhead();
  void PushEvent(v1::JudgeEvent event);

  // judge_replay.cc
  bool JudgeAgain(const Replay& replay, JournalReader& reader);
  void JudgeAgain(const StoredEntry& entry);
  bool KnownAhead(uint64_t entry, const v1::Batch& batch) const;
  void ReportFoundAgain();

  // judge_timers.cc
  void HandleTimers(JudgeQueue::Clock::time_point now);
  void CloseOverTheSlow(const RunTable::Skip& skip);
  void ForgetRunsOver();
  void ForgetStreams(JudgeQueue::Clock::time_point now);
  void PartWithRuns();
  void EndDisconnected() PLUMB_EXCLUDES(mutex_);
  void ForgetLongOver() PLUMB_EXCLUDES(mutex_);
  void ForgetIncidents() PLUMB_EXCLUDES(mutex_);
  bool MayPartWith(const std::string& run) const;
  bool KeepPlace(const std::string& run) PLUMB_EXCLUDES(mutex_);
  void ForgetRun(const std::string& run);

  void HandInCheckpoint();
  void Handle(JudgeItem& item, const std::vector<std::string>& runs);
  void HandleBatch(uint64_t entry, uint64_t stream_id, const ParsedBatch& batch,
                   const std::vector<std::string>& runs);
  void CountRefused(uint64_t items);
  RunTable::Time Now() const { return awake_.At(JudgeQueue::Clock::now()); }
  std::string RunOf(const v1::JudgeEvent& event) const;
  uint64_t EntryOf(const std::string& run) const;
  // judge_decisions.cc
  JournalEntry EntryFor(v1::JudgeEvent* event, uint64_t* after) const;
  absl::Status ApplyCommitted(uint64_t after, const v1::JudgeEvent& event,
                              const absl::StatusOr<EntryPrefix>& committed);
  bool MayKeepLater() const;
  void KeepLater(FairQueue::Begun begun);
  bool ApplyLater(const LaterDecisions::Decision& decision);
  void Apply(uint64_t entry, const v1::JudgeEvent& event);
  void OnRunOver(const std::string& run);
  void OnVerdict(const v1::Verdict& verdict);
  void SetClosedStep(const std::string& run);
  void NoteNames();
  void CloseContinued(const std::vector<std::string>& runs);
  void CheckpointIfDue();
  void TakeCheckpoint(CheckpointSink* sink);
  Checkpointer::Take CheckpointTaker(std::future<void>* taken);
  void PersistReports(Archive& archive) PLUMB_REQUIRES(mutex_);
  bool stopping() const { return JudgeQueue::Clock::now() > stop_by_.load(); }

  IncidentTable* const incident_table_;
  const GapTable* const gaps_;
  Counters* const counters_;
  Store* const store_;
  std::function<void(const v1::Finding&)> on_finding_;
  std::function<void(const v1::Finding&, const v1::FindingSite&)> on_found_;
  Liveness liveness_;
  JudgeQueue queue_;  // has its own lock
  std::unique_ptr<rules::Engine> engine_;

  // Only the holder of the turn may use the following members.
  JudgeThreads threads_;
  FairQueue fair_queue_;
  std::deque<JudgeItem> for_all_;  // decisions that concern every run
  bool ahead_reported_ = false;    // since the last checkpoint
  bool retry_next_ = false;        // before what waits
  bool later_next_ = false;        // before what waits
  LaterDecisions later_{[this] { queue_.Wake(); }};
  JudgeQueue::Clock::time_point next_timers_{};
  JudgeQueue::Clock::time_point next_look_{};    // at liveness_
  JudgeQueue::Clock::time_point next_forget_{};  // for streams to forget
  // Streams that the engine knows and the stream table does not, and the entry by which all their
  // batches are judged; 0: not known yet.
  std::map<uint64_t, uint64_t> left_streams_;
  AwakeClock awake_;
  std::map<std::string, v1::Finding> found_again_;  // while catching up
  // while catching up: runs that the checkpoint knew beyond its entry
  std::map<std::string, uint64_t> restored_ahead_;
  StreamMarks streams_;
  Journal* journal_ = nullptr;
  Checkpointer* checkpointer_ = nullptr;
  const size_t max_runs_;
  CheckpointSchedule checkpoints_;
  uint64_t applied_event_ = 0;            // number of the last one
  bool undecided_ = false;                // an event could not be written: it must not take effect
  std::atomic<bool> copy_failed_{false};  // the copy of the process failed: the next checkpoint is
                                          // made without one

  std::unique_ptr<Quarantine> own_quarantine_;
  Quarantine* const quarantine_;
  HeldRuns held_runs_;
  MemoryLimits limits_;

  mutable Mutex mutex_;  // guards the following members, which queries read
  RunTable runs_ PLUMB_GUARDED_BY(mutex_);
  RunReports reports_ PLUMB_GUARDED_BY(mutex_);
  RunEdits edits_ PLUMB_GUARDED_BY(mutex_);
  std::atomic<uint64_t> edits_made_{0};
  OverRuns over_runs_ PLUMB_GUARDED_BY(mutex_);
  mutable Mutex owners_mutex_;
  MemoryBudget::OwnerOf owner_of_ PLUMB_GUARDED_BY(owners_mutex_);
  std::function<void(const std::string& run)> on_over_ PLUMB_GUARDED_BY(owners_mutex_);
  std::function<bool(uint64_t stream_id)> known_stream_ PLUMB_GUARDED_BY(owners_mutex_);
  std::vector<KnownName> names_ PLUMB_GUARDED_BY(owners_mutex_);

  std::atomic<uint64_t> judged_entry_{0};
  std::atomic<int64_t> unix_ns_{0};
  std::atomic<bool> catching_up_{false};
  std::atomic<JudgeQueue::Clock::time_point> stop_by_{JudgeQueue::Clock::time_point::max()};
  std::atomic<uint64_t> open_step_bytes_{0};
  std::atomic<uint64_t> rule_bytes_{0}, rules_set_aside_{0}, series_left_out_{0};
  std::atomic<uint64_t> left_out_{0};

  DecisionGate decisions_;
};

}  // namespace plumbline::server
