// The rule engine: joins evidence of one (run, site, step) over ranks, closes steps in order, and
// runs the rules. The agent (local verdicts), plumbd and plumb audit use the same engine.
//
// The callback receives verdicts during Add, MarkGone and Finish, in an order that depends only on
// the evidence of their run.
//
// Thread-safety: calls for different runs may be made at the same time: Add (of batches that have
// no run and no stream in common), Emit, JudgeEnds, MarkGone, MarkAbsent, CloseThrough, MakeRoom,
// Drop, FinishRun, and the queries about one run. The callbacks and the guard are then called at
// the same time, too. Runs, open_bytes, LargestRun, series_left_out and SuppressionsAre may always
// be called. For all other calls the caller must have the engine to itself. Locks guard what runs
// share (the sets of streams, suppressions, sums).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/engine/run_state.h"
#include "rules/engine/series.h"
#include "rules/rule.h"
#include "rules/suppressions.h"

namespace plumbline::rules {

struct EngineConfig {
  // Globs over rule ids. A rule runs if any glob matches. If empty, all built rules run.
  std::vector<std::string> rules;
  // "RULE.OPTION=VALUE" settings, RULE a full id.
  std::vector<std::string> settings;
  // W: a rank without backlog that is this many steps late is closed over, unless it is expected.
  int64_t window_steps = 64;
  // Limit of the bytes that the open steps of one run hold, as RunState counts them. Beyond it the
  // oldest steps close. The rules' memory of a run is limited to a part of it (engine/run_rules.h).
  // Beyond that the rule that remembers most no longer judges the run. 0: no limits.
  uint64_t run_bytes = 0;
  static constexpr uint64_t kRulesPart = 4;
  // Limit of the series of a role (losses, rates, gradient norms) that the rules of one run judge:
  // the first ones are judged. The others are stored and counted, and each rule that would judge
  // them is inconclusive.
  uint64_t most_series = 20'000;
  // True if the host knows which ranks are connected: then steps are closed over a rank only when
  // the host requests it (MarkGone, MarkAbsent, CloseThrough). If false, a rank without backlog
  // that lags by the window is closed over.
  bool hosted = false;
  // Findings that are marked as suppressed, and the day by which some of them have expired (days
  // since 1970-01-01).
  std::vector<Suppression> suppressions;
  int32_t today = 0;
  // Roles that the user gave to series by name, for the rules (Options::roles). A checkpoint
  // depends on them.
  SeriesRoles roles;
};

// Counts of verdicts, for "coverage" and the last line of a report.
struct Coverage {
  uint64_t judged = 0;  // verdicts that are pass or finding
  uint64_t inconclusive = 0;
  uint64_t dropped = 0;  // evidence items that agents, readers or the engine report as lost
};

// Lets a host control whose evidence the engine judges: it can leave a run out, record the run
// during which its process died, and continue without a run that cannot be judged.
class RunGuard {
 public:
  virtual ~RunGuard() = default;
  // Called before anything of `run` is judged. If it returns false, the engine skips the run and
  // loses the evidence of this call.
  virtual bool Begin(const std::string& run) = 0;
  // Called after each Begin that returned true.
  virtual void End() = 0;
  // Called after End if judging threw an exception; the engine has forgotten the run.
  virtual void Failed(const std::string& run, const std::string& what) = 0;
};

class Engine {
 public:
  using OnVerdict = std::function<void(const v1::Verdict&)>;
  using OnSeries = std::function<void(const StepSeries&)>;

  // Returns InvalidArgument with a message for people if a setting is malformed, a glob matches no
  // rule, or an option is unknown.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineConfig& config,
                                                        OnVerdict on_verdict);
  ~Engine();

  // Sets the callback that stores the scalars of each step as it closes, judged or not: one call
  // for each list of series. Call before the first Add.
  void SetOnSeries(OnSeries on_series);
  // Sets the callback for evidence that arrives after its step was closed. Call before the first
  // Add.
  using OnLate =
      std::function<void(const std::string& run, const std::string& cause, uint64_t items)>;
  void SetOnLate(OnLate on_late);
  // Sets the callback for evidence that was held and is lost, if no agent reports it: it was
  // refused (AddRefused), or a later attempt repeated its step. Call before the first Add.
  using OnLost =
      std::function<void(const std::string& run, const std::string& cause, uint64_t items)>;
  void SetOnLost(OnLost on_lost);
  // Sets the callback at the end of a run of live processes, after its rules. It returns further
  // verdicts (Report::NotLookedAtSince). Call before the first Add.
  using OnWhole = std::function<std::vector<v1::Verdict>(const RunSummary& run)>;
  void SetOnWhole(OnWhole on_whole);
  // Sets the guard, which is called before each run is judged, in every call below. It must outlive
  // this. Call before the first Add.
  void SetGuard(RunGuard* guard);

  // Declares that everything this process recorded will be added, and that MarkGone will follow. No
  // step closes without its rank, however far the others are. For readers of whole records. Call
  // before the first Add of the run. Not part of a checkpoint.
  void Expect(const v1::Source& source);

  // Takes one batch and holds its evidence, without a copy, until its steps close. Evidence of
  // steps already closed is counted as late, passed to OnSeries, and judged only by rules that need
  // no other rank. A malformed batch (a source index out of range, a missing site, a rank beyond
  // its world, rows of a set that its stream has not declared) is refused whole and leaves the
  // engine unchanged. A source of a later attempt supersedes the open steps of earlier ones, so an
  // offline host adds the attempts of a run in ascending order.
  absl::Status Add(std::shared_ptr<const v1::Batch> batch);
  absl::Status Add(v1::Batch batch);
  // Takes a batch that has passed CheckBatch, with any limits. Checks only what depends on earlier
  // batches: the declared sets and their rows.
  absl::Status AddChecked(const std::shared_ptr<const v1::Batch>& batch);

  // Takes only the sets that `batch` declares for its stream. Returns InvalidArgument if they are
  // malformed, or differ from those that the stream declared before.
  absl::Status DeclareSets(const v1::Batch& batch);
  // Forgets the sets of a stream that the host no longer knows; sets outlive the stream's runs.
  // After this, rows that name such a set are refused, until the stream declares it again.
  void ForgetStream(uint64_t stream_id);
  // Returns the streams whose sets are known, ascending.
  std::vector<uint64_t> Streams() const;

  // Takes the usable part of a batch that Add refused although its sender got an acknowledgement:
  // the progress of its ranks. Counts its evidence and values as lost.
  absl::Status AddRefused(const v1::Batch& batch);

  // Replaces the suppressions that mark findings. A checkpoint contains them.
  void SetSuppressions(std::vector<Suppression> list, int32_t today);
  // Returns true if SetSuppressions would change nothing.
  bool SuppressionsAre(const std::vector<Suppression>& list, int32_t today) const;

  // Adds a verdict that the host derived from a journalled event, for a rule that judges no
  // evidence. It is completed, marked and passed on like any other. If the run is unknown or the
  // rule was not selected, it is ignored.
  void Emit(const std::string& run, const char* rule, v1::Verdict verdict);

  // Reports how the run's processes ended so far (health/run-died). The host calls it some time
  // after processes ended badly, so that the endings of others have arrived. Reported again when
  // the run is over.
  void JudgeEnds(const std::string& run);

  // Marks the source's process as gone: its rank is closed over until anything arrives from it
  // again. `way` is how the process ended, if known (kGone: it reported until its connection
  // broke).
  void MarkGone(const v1::Source& source, LateCause cause = LateCause::kStreamBroken,
                EndKind way = EndKind::kOpen);
  // Marks the ranks of the source's attempt and role that were never seen as gone, too.
  void MarkAbsent(const v1::Source& source);
  // Closes the open steps up to `through`, without the ranks that have not delivered them.
  void CloseThrough(const std::string& run, uint32_t attempt, v1::Role role, int64_t through);
  // Returns the groups that a host may close over (see Lag). The cost grows with the number of
  // ranks that lag.
  std::vector<Lag> Lagging(const std::string& run) const;
  std::vector<std::string> Runs() const;
  // Returns the progress of the newest attempt's groups. Empty if the run is unknown.
  std::vector<GroupProgress> Groups(const std::string& run) const;

  // Ends the input: closes every step and judges each run as a whole. Call once.
  void Finish();

  // Judges one run as a whole now; a live host calls it when all ranks sent a goodbye or are gone.
  // If all sent a goodbye, forgets the run's state. Otherwise an unreachable rank may return on its
  // stream, and the run continues. If nothing arrived since the run was judged, forgets it: the
  // host limits how many are kept (RunsOver).
  void FinishRun(const std::string& run);
  // Returns the names of the runs that are over and still stored.
  std::vector<std::string> RunsOver() const;
  bool Knows(const std::string& run) const;  // true also for a run that is over and still stored
  // Forgets one run without a verdict.
  void Drop(const std::string& run);
  // Closes the oldest steps of a run until its open steps hold at most `bytes`.
  void MakeRoom(const std::string& run, uint64_t bytes);
  // Stops the run's rules that remember most, until the rules remember at most `bytes`. A stopped
  // rule no longer judges the run.
  void MakeRulesRoom(const std::string& run, uint64_t bytes);

  Coverage coverage() const;
  // Returns the bytes that open steps hold, of a run or of all runs.
  uint64_t open_bytes(const std::string& run) const;
  uint64_t open_bytes() const;
  // Returns the run whose open steps hold most bytes; empty if no run has any.
  std::string LargestRun() const;
  // Calls `on_name` for each stored name of a run: of sites, and of losses with their cause ("" for
  // a site).
  using OnName = std::function<void(const std::string& layer, const std::string& op,
                                    const std::string& cause)>;
  void ForEachName(const std::string& run, const OnName& on_name) const;
  // Returns the bytes that the rules of a run, or of all runs, remembered when they were last
  // weighed.
  uint64_t rule_bytes(const std::string& run) const;
  uint64_t rule_bytes() const;
  // Returns the number of rules that no longer judge their run, over the runs in progress.
  uint64_t rules_set_aside() const;
  // Returns the number of series that are stored and not judged, because their run has more than
  // EngineConfig::most_series of their role: of a run, or of all runs in progress.
  uint64_t series_left_out(const std::string& run) const;
  uint64_t series_left_out() const;
  // Returns the number of steps that closed because their run held too many bytes, over the runs in
  // progress.
  uint64_t closed_for_room() const;
  // Returns the newest closed step of a run; -1 before the first.
  int64_t closed_step(const std::string& run) const;

  // Returns the engine's whole state, with the evidence of open steps. An engine that reads it
  // continues as this one would. Equal states give equal bytes. Must not be called from the
  // callback.
  std::string Checkpoint() const;
  // Writes the same bytes in pieces. Needs about as much memory as one rule's state of one run.
  void Checkpoint(const Archive::Sink& sink) const;
  // Takes over the state of the engine that wrote `bytes`. Returns FailedPrecondition if this
  // engine is not fresh. Returns InvalidArgument if the bytes are damaged or were made with other
  // rules, options, window or format. Then this engine is still fresh, and the caller must replay
  // the input from the start.
  absl::Status Restore(std::string_view bytes);

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline::rules
