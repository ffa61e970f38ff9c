// The judging thread: owns the rule engine, feeds it what the journal holds, turns verdicts into
// incidents and keeps what the query service shows.
//
// Everything that decides a verdict has a place in the journal: batches by their numbers, and what
// the judge finds by the clock or is told from outside as events, which are committed first and
// then applied. After a restart the same entries and events give the same verdicts.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/busy.h"
#include "base/mutex.h"
#include "plumbline/v1/query.pb.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "server/incidents/incident_book.h"
#include "server/journal/checkpointer.h"
#include "server/journal/gap_book.h"
#include "server/journal/journal.h"
#include "server/journal/journal_scan.h"
#include "server/judge/awake_clock.h"
#include "server/judge/quarantine.h"
#include "server/judge/run_retry.h"
#include "server/judge/stream_marks.h"
#include "server/process/counters.h"
#include "server/store/store.h"
#include "server/stream/judge_queue.h"
#include "server/stream/liveness.h"
#include "server/stream/run_table.h"

namespace plumbline::server {

struct JudgeOptions {
  rules::EngineConfig engine;
  std::chrono::nanoseconds grace = std::chrono::seconds(30);
  std::chrono::nanoseconds hang = std::chrono::seconds(10);  // a rank may stand so long
  size_t queue_bytes = 256u << 20;
  size_t max_streams = 20000;        // that a checkpoint knows
  uint64_t open_bytes = 0;           // that the open steps of all runs may hold; 0: no bound
  Store* store = nullptr;            // of what closes; must outlive the judge
  Quarantine* quarantine = nullptr;  // must outlive it; null: one that is not kept
  OpenRun open_run;                  // what is kept of a run; empty: nothing is
  // What is judged between two checkpoints: so many bytes, or so much time, whichever is first.
  uint64_t checkpoint_bytes = 256u << 20;
  std::chrono::nanoseconds checkpoint_interval = std::chrono::seconds(60);
};

// What a former process left to be judged.
struct Replay {
  std::string directory;  // of the journal; empty: nothing is left
  uint64_t from = 1;      // entries `from` to `to`, both included
  uint64_t to = 0;
  std::vector<StoredEvent> events;  // that were not applied, in order
};

// Thread-safe but for Create, Start and destruction.
class Judge {
 public:
  // InvalidArgument when the engine refuses its configuration. All pointers must outlive it.
  static absl::StatusOr<std::unique_ptr<Judge>> Create(const JudgeOptions& options,
                                                       IncidentBook* book, const GapBook* gaps,
                                                       Counters* counters);
  ~Judge();

  // Takes over what another judge knew. An error says why that was not possible; this one then
  // knows nothing, as before. Before Start.
  absl::Status Restore(const Checkpoint& checkpoint);

  // Judges what `replay` names, then what is pushed. Once. `journal` must outlive it, and so must
  // `checkpointer`, which may be null: nothing is kept then.
  // An error: what is to be judged again cannot be read.
  absl::Status Start(Journal* journal, Checkpointer* checkpointer, Replay replay);

  // See JudgeQueue. A batch is pushed once the journal holds it, in order of the numbers.
  bool Admit(size_t bytes, std::function<void()> resume) {
    return queue_.Admit(bytes, std::move(resume));
  }
  void Push(JudgeItem item) { queue_.Push(std::move(item)); }
  void Hold(bool held) { queue_.Hold(held); }
  // What the open steps of all runs hold, a moment ago.
  uint64_t open_step_bytes() const { return open_step_bytes_; }
  uint64_t open_step_limit() const { return open_limit_; }  // 0: none
  // How often the oldest steps of a run were closed because all runs together held too much.
  uint64_t made_room() const { return made_room_; }
  // Findings and lines that a run's report had no room for.
  uint64_t left_out() const { return left_out_; }
  // How long the judging thread is at one item, or one entry that it judges again.
  std::chrono::nanoseconds judging_for() const { return judging_.For(); }

  // Something decided outside: takes its place among the batches and is kept like them. `done` runs
  // on the judging thread after it was applied, or with the reason why it could not be kept; never
  // when the judge stops before.
  void Decide(v1::JudgeEvent event, std::function<void(absl::Status)> done);

  // Somebody decided about a run in quarantine; `done` as of Decide, of a retry once all that is
  // kept of the run has been judged. `who` is for the log and the incident's history.
  void UpdateRun(const std::string& run, v1::UpdateRunRequest::Action action,
                 const std::string& who, std::function<void(absl::Status)> done);
  const Quarantine& quarantine() const { return *quarantine_; }

  // Judges what was pushed, for a few seconds at most, then stops. Runs that go on elsewhere are
  // not finished by it. The journal must have been stopped.
  void Stop();

  // `on_finding` runs on the judging thread for each finding that shows for its incident, when it
  // begins to or has become stronger; it must be quick. For those of a journal that is judged
  // again: afterwards, where the run goes on. Before Start.
  void SetOnFinding(std::function<void(const v1::Finding&)> on_finding) {
    on_finding_ = std::move(on_finding);
  }

  // Whose run it is, and what share of the open steps that one may hold. Where all runs together
  // hold too much, who is furthest above their share gives way. Empty: nobody is known.
  struct Owner {
    std::string name;
    double share = 1;
  };
  void SetOwners(std::function<Owner(const std::string& run)> owner_of);

  // Told by the streams, asked by the judge.
  Liveness& liveness() { return liveness_; }

  std::vector<v1::RunInfo> Runs() const;
  RunKnown Known(const std::string& run) const;
  // Whom runs that go on know, as far as was judged.
  std::vector<KnownRank> Ranks() const;
  v1::ListVerdictsResponse Verdicts(const std::string& run) const;
  size_t queued() const { return queue_.size(); }
  size_t queued_bytes() const { return queue_.bytes(); }
  int64_t oldest_queued_unix_ns() const { return queue_.oldest_unix_ns(); }
  // Entries up to this number have been judged.
  uint64_t judged_entry() const { return judged_entry_; }
  // Whether a former process's entries are still being judged.
  bool catching_up() const { return catching_up_; }
  // The time of what is being judged: of receipt, or of the event. For people, not for verdicts.
  int64_t unix_ns() const { return unix_ns_; }

 private:
  Judge(const JudgeOptions& options, IncidentBook* book, const GapBook* gaps, Counters* counters);

  void Loop();
  bool JudgeAgain(const Replay& replay, JournalReader& reader);
  void JudgeAgain(const StoredEntry& entry);
  void TellFoundAgain();
  void HandInCheckpoint();
  void Handle(JudgeItem item);
  void HandleBatch(uint64_t entry, uint64_t stream_id, const ParsedBatch& batch);
  void HandleTimers(JudgeQueue::Clock::time_point now);
  void LookAtClock(JudgeQueue::Clock::time_point now);
  RunTable::Time Now() const { return awake_.At(JudgeQueue::Clock::now()); }
  void CloseOverTheSlow();
  absl::Status KeepAndApply(v1::JudgeEvent event);
  void Apply(const v1::JudgeEvent& event);
  void OnVerdict(const v1::Verdict& verdict);
  void SetClosedStep(const std::string& run);
  void ShowClosedStep(const std::string& run);
  // judge_budget.cc
  void KeepWithinBudget();
  std::string WhoGivesWay() const;
  void KeepReplayWithinBudget(bool more_events);
  void RetryTakesTooMuch(const std::string& run);
  // judge_quarantine.cc
  bool SetAside(uint64_t entry, const ParsedBatch& parsed, const std::vector<std::string>& runs);
  void DeferEvent(const v1::JudgeEvent& event);
  void TellHeld();
  void TellHeldBefore();
  void Acknowledge(const v1::QuarantinedRun& run, const std::string& who,
                   const std::string& reason);
  void DropRun(const v1::QuarantinedRun& run, const std::string& who,
               const std::function<void(absl::Status)>& done);
  void RetryRun(const v1::QuarantinedRun& run, const std::string& who,
                std::function<void(absl::Status)> done);
  void GoOnWithRetry(bool to_the_end);
  void JudgeRetried(uint64_t entry, std::shared_ptr<const v1::Batch> batch);
  void JudgeRetried(uint64_t entry, const v1::JudgeEvent& event);
  void JudgeRetried(const v1::ReadRunItem& item);
  void EndRetry(const absl::Status& status);
  void ReleaseRetried();
  JudgeQueue::Clock::time_point WakeAt(JudgeQueue::Clock::time_point next_timers) const;
  void CloseWhatWentOn();
  void CheckpointIfDue();
  Checkpoint TakeCheckpoint();
  void PersistReports(Archive& archive) PLUMB_REQUIRES(mutex_);
  bool stopping() const { return JudgeQueue::Clock::now() > stop_by_.load(); }

  IncidentBook* const book_;
  const GapBook* const gaps_;
  Counters* const counters_;
  Store* const store_;
  std::function<void(const v1::Finding&)> on_finding_;
  Liveness liveness_;
  JudgeQueue::Clock::time_point next_look_{};  // at it
  AwakeClock awake_;                           // the judging thread's own
  JudgeQueue queue_;
  std::unique_ptr<rules::Engine> engine_;           // the judging thread's own
  std::map<std::string, v1::Finding> found_again_;  // likewise; while catching up
  StreamMarks streams_;                             // likewise
  Journal* journal_ = nullptr;
  Checkpointer* checkpointer_ = nullptr;
  const uint64_t checkpoint_bytes_;
  const std::chrono::nanoseconds checkpoint_interval_;
  uint64_t bytes_since_checkpoint_ = 0;
  JudgeQueue::Clock::time_point next_checkpoint_{};
  uint64_t checkpointed_entry_ = 0;
  uint64_t checkpointed_event_ = 0;
  uint64_t applied_event_ = 0;  // number of the last one
  bool undecided_ = false;      // an event could not be kept: what it says must not happen

  // Runs in quarantine, and the one that is judged again.
  struct Retry {
    std::unique_ptr<RunRetry> items;  // null: all was judged, a checkpoint has to know it
    v1::QuarantinedRun run;
    std::string who;
    std::function<void(absl::Status)> done;
    bool handed_in = false;  // the checkpoint
    int64_t former_checkpoint = 0;
    JudgeQueue::Clock::time_point wake{};
  };
  const OpenRun open_run_;
  std::unique_ptr<Quarantine> own_quarantine_;
  Quarantine* const quarantine_;
  std::vector<v1::QuarantinedRun> newly_held_;
  std::unique_ptr<Retry> retry_;

  struct RunReport {
    RunReport() { report.Bound(); }
    rules::Report report;
    uint64_t judged = 0;
    uint64_t inconclusive = 0;
    void Persist(Archive& archive) { archive(report, judged, inconclusive); }
  };
  mutable Mutex mutex_;  // guards the two below, which queries read
  RunTable runs_ PLUMB_GUARDED_BY(mutex_);
  std::map<std::string, RunReport> reports_ PLUMB_GUARDED_BY(mutex_);
  mutable Mutex owners_mutex_;
  std::function<Owner(const std::string& run)> owner_of_ PLUMB_GUARDED_BY(owners_mutex_);

  std::atomic<uint64_t> judged_entry_{0};
  std::atomic<int64_t> unix_ns_{0};
  std::atomic<bool> catching_up_{false};
  std::atomic<JudgeQueue::Clock::time_point> stop_by_{JudgeQueue::Clock::time_point::max()};
  Busy judging_;
  std::atomic<uint64_t> open_step_bytes_{0};
  const uint64_t open_limit_;
  std::atomic<uint64_t> made_room_{0};
  std::atomic<uint64_t> left_out_{0};
  std::thread thread_;
};

}  // namespace plumbline::server
