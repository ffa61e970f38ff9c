// Runs in quarantine, as the judge treats them: the judge leaves them out, reports them as
// incidents, and applies a person's decision. A dropped run is never judged. A retried run is
// judged again from all its stored items, in slices between the work on other runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/journal.pb.h"
#include "plumbline/v1/query.pb.h"
#include "rules/engine/engine.h"
#include "server/incidents/incident_table.h"
#include "server/journal/checkpointer.h"
#include "server/judge/checkpoint_schedule.h"
#include "server/judge/judge_threads.h"
#include "server/judge/quarantine.h"
#include "server/judge/run_retry.h"
#include "server/store/store.h"
#include "server/stream/judge_queue.h"
#include "server/stream/run_table.h"

namespace plumbline::server {

// Not thread-safe: every call needs the turn (judge_threads.h).
class HeldRuns {
 public:
  using Clock = JudgeQueue::Clock;
  using Done = std::function<void(absl::Status)>;

  // The functions of the judge that this uses.
  class Judging {
   public:
    virtual ~Judging() = default;
    virtual absl::Status KeepAndApply(v1::JudgeEvent event) = 0;
    virtual absl::Status AddToEngine(const std::shared_ptr<const v1::Batch>& batch) = 0;
    virtual void ShowClosedStep(const std::string& run) = 0;
    // Removes a run from the results of queries, and returns its counts; KeepCounted puts them
    // back.
    virtual RunTable::Counted TakeCounted(const std::string& run) = 0;
    virtual void KeepCounted(const std::string& run, const RunTable::Counted& counted) = 0;
    // Returns the entry up to which the run was judged, and the last event that was applied.
    virtual CheckpointSchedule::At JudgedOf(const std::string& run) const = 0;
    // Returns true while no event may be written, because the journal is replayed.
    virtual bool catching_up() const = 0;
    // Returns true if an event could not be written, so that no state may be made permanent.
    virtual bool undecided() const = 0;
  };

  // Pointers must outlive this.
  struct Parts {
    Judging* judging;
    Quarantine* quarantine;
    IncidentTable* incidents;
    Store* store;
    JudgeThreads* threads;
    CheckpointSchedule* checkpoints;
    OpenRun open_run;  // empty: nothing is kept of a run
  };
  explicit HeldRuns(Parts parts);

  // Call before anything else. `checkpointer` may be null: no checkpoint is written.
  void SetEngine(rules::Engine* engine) { engine_ = engine; }
  void SetCheckpointer(const Checkpointer* checkpointer) { checkpointer_ = checkpointer; }

  // Returns true if all `runs` of the batch are in quarantine, so that it is not judged.
  bool SetAside(uint64_t entry, const ParsedBatch& parsed, const std::vector<std::string>& runs);
  // Keeps an event for the retried run, which is judged up to an earlier entry.
  void Defer(uint64_t entry, const v1::JudgeEvent& event);
  // Reports runs put into quarantine, after the engine has finished with the work that caused it.
  // During a replay no event may be written; then the runs are reported at its end.
  void Report();
  // Reports the runs that this start put into quarantine, and those that the earlier process could
  // not report.
  void ReportEarlier();

  // Applies a person's decision (Judge::UpdateRun).
  void Update(const std::string& run, v1::UpdateRunRequest::Action action, const std::string& who,
              const Done& done);

  // Returns the run that is being retried; null if there is none.
  const std::string* retried() const { return retry_ == nullptr ? nullptr : &retry_->run.run(); }
  // Returns when Continue has work again. Only with a retried run.
  Clock::time_point wake() const { return retry_->wake; }
  // Judges the retried run until the slice is over. If too much waits for this run, judges to the
  // end.
  void Continue();
  // Ends the retry of this run, if it is the retried one.
  void EndRetryOf(const std::string& run, const absl::Status& status);
  // Records that the requested checkpoint was handed in.
  void CheckpointHandedIn();

 private:
  struct Retry {
    std::unique_ptr<RunRetry> items;  // null: all was judged, and a checkpoint must follow
    v1::QuarantinedRun run;
    std::string who;
    Done done;
    bool handed_in = false;  // the checkpoint
    int64_t former_checkpoint = 0;
    RunTable::Counted counted;    // before the retry
    uint64_t refused_before = 0;  // items of this run that were not refused again yet
    Clock::time_point wake{};
  };

  JudgeThreads::Worker& worker() const { return *parts_.threads->Mine(); }
  void Keep(const v1::QuarantinedRun& run);
  void Drop(const v1::QuarantinedRun& run, const std::string& who, const Done& done);
  void Acknowledge(const v1::QuarantinedRun& run, const std::string& who,
                   const std::string& reason);
  void BeginRetry(const v1::QuarantinedRun& run, const std::string& who, const Done& done);
  RunRetry::Next JudgeStored(Clock::time_point until);
  bool JudgeDeferred(Clock::time_point until);
  void JudgeBatch(uint64_t entry, std::shared_ptr<const v1::Batch> batch);
  void JudgeEvent(uint64_t entry, const v1::JudgeEvent& event);
  void JudgeStoredItem(const v1::ReadRunItem& item);
  void EndSlice(RunRetry::Next next, bool all);
  void Release();
  void EndRetry(const absl::Status& status);

  const Parts parts_;
  rules::Engine* engine_ = nullptr;
  const Checkpointer* checkpointer_ = nullptr;
  std::unique_ptr<Retry> retry_;
};

}  // namespace plumbline::server
