// The rule engine: joins evidence of one (run, site, step) over ranks, closes steps in order, and
// runs the rules. One engine, three hosts: the agent (local verdicts), plumbd, plumb audit.
//
// Verdicts come out through the callback, during Add, MarkGone and Finish, in an order that depends
// on the evidence of their run alone.
//
// Calls that speak of different runs may be made at the same time: Add (of batches that have no run
// and no stream in common), Tell, JudgeEnds, MarkGone, MarkAbsent, CloseThrough, MakeRoom, Drop,
// FinishRun, and what asks about one run. The callbacks and the guard are then called at the same
// time, too. Runs, open_bytes, LargestRun, series_left_out and SuppressionsAre may always be
// called; the rest is for one thread that has the engine alone. What runs have in common (the sets
// of streams, suppressions, sums) has locks.
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
#include "rules/engine/run_guard.h"
#include "rules/engine/run_state.h"
#include "rules/engine/series.h"
#include "rules/rule.h"
#include "rules/suppressions.h"

namespace plumbline::rules {

struct EngineConfig {
  // Globs over rule ids; a rule runs when any matches. Empty: all built rules.
  std::vector<std::string> rules;
  // "RULE.OPTION=VALUE" settings, RULE a full id.
  std::vector<std::string> settings;
  // W: a rank without backlog that is this many steps behind is closed over, unless it is expected.
  int64_t window_steps = 64;
  // What the open steps of one run may hold, in bytes as RunState counts them; beyond it the oldest
  // ones close. What its rules remember takes at most a part of as much (engine/run_rules.h);
  // beyond it the one that remembers most judges the run no further. 0: no bounds.
  uint64_t run_bytes = 0;
  static constexpr uint64_t kRulesPart = 4;
  // How many series of a role (losses, rates, gradient norms) the rules of one run judge: the first
  // ones. The others are stored and counted, and each rule that would judge them is inconclusive.
  uint64_t most_series = 20'000;
  // The host knows who is connected: steps are closed over a rank only when it says so (MarkGone,
  // MarkAbsent, CloseThrough). False: a rank that lags by the window without backlog is closed
  // over.
  bool hosted = false;
  // Findings that are marked as suppressed, and the day by which some of them have expired (days
  // since 1970-01-01).
  std::vector<Suppression> suppressions;
  int32_t today = 0;
  // What the user says of series by name, for the rules (Options::roles). Part of what a checkpoint
  // depends on.
  SeriesRoles roles;
};

// What was judged, for "coverage" and the last line of a report.
struct Coverage {
  uint64_t judged = 0;  // verdicts that are pass or finding
  uint64_t inconclusive = 0;
  uint64_t dropped = 0;  // evidence items that agents, readers or the engine report as lost
};

class Engine {
 public:
  using OnVerdict = std::function<void(const v1::Verdict&)>;
  using OnSeries = std::function<void(const StepSeries&)>;

  // InvalidArgument with a message for people when a setting is malformed, a glob matches nothing,
  // or an option is unknown.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineConfig& config,
                                                        OnVerdict on_verdict);
  ~Engine();

  // Shows the scalars of each step as it closes, judged or not, to who stores them: one call for
  // each list of series. Before the first Add.
  void SetOnSeries(OnSeries on_series);
  // Told of evidence that came after its step had been closed, as it comes. Before the first Add.
  using OnLate =
      std::function<void(const std::string& run, const std::string& cause, uint64_t items)>;
  void SetOnLate(OnLate on_late);
  // Called with evidence that was held and is lost, which no agent reports: it was refused
  // (AddRefused), or a later attempt has repeated its step. Before the first Add.
  using OnLost =
      std::function<void(const std::string& run, const std::string& cause, uint64_t items)>;
  void SetOnLost(OnLost on_lost);
  // Asked before each run is judged, in every call below. Before the first Add; must outlive this.
  void SetGuard(RunGuard* guard);

  // All that this process recorded will be added, and then MarkGone called for it: no step closes
  // without its word, however far the others are. For who reads whole records; before the first Add
  // of the run. Not part of a checkpoint.
  void Expect(const v1::Source& source);

  // Takes one batch, whose evidence is held, not copied, until its steps close. Evidence
  // of steps already closed is counted as late, shown to OnSeries, and judged by the rules that
  // need no other rank's; nothing joins it any more. Malformed batches (a source index out of
  // range, a missing site, a rank beyond its world, rows of a set that its stream has not declared)
  // are refused whole and leave the engine as it was. A source of a later attempt supersedes the
  // open steps of earlier ones, so an offline host feeds a run's attempts in ascending order.
  absl::Status Add(std::shared_ptr<const v1::Batch> batch);
  absl::Status Add(v1::Batch batch);

  // Takes the sets that `batch` declares for its stream, as Add does, and nothing else of it.
  // InvalidArgument when they are malformed, or differ from those that the stream declared before.
  absl::Status DeclareSets(const v1::Batch& batch);
  // The sets of a stream outlive its runs. The host knows the stream no longer: forgets them. Rows
  // that name one are refused from then on, until the stream declares it again.
  void ForgetStream(uint64_t stream_id);
  // The streams whose sets are known, ascending.
  std::vector<uint64_t> Streams() const;

  // Takes what can be judged of a batch that Add refused, and whose sender believes it to be held:
  // how far its ranks are. Counts its evidence and values as lost.
  absl::Status AddRefused(const v1::Batch& batch);

  // From now on findings are marked by these. They are part of what a checkpoint holds.
  void SetSuppressions(std::vector<Suppression> list, int32_t today);
  // Would SetSuppressions change anything?
  bool SuppressionsAre(const std::vector<Suppression>& list, int32_t today) const;

  // A verdict that a host reached from a journalled event, of a rule that no evidence speaks for:
  // completed, marked and handed on as any other. Ignored when the run is not known, or the rule
  // was not selected.
  void Tell(const std::string& run, const char* rule, v1::Verdict verdict);

  // Processes of the run ended badly, and those that followed had a moment to say so: says what
  // happened so far (health/run-died). It is said again when the run is over.
  void JudgeEnds(const std::string& run);

  // The source's process is gone: its rank is closed over until something comes of it again.
  // `way`: what is known of the process besides (kGone: it was heard until its connection broke).
  void MarkGone(const v1::Source& source, LateCause cause = LateCause::kStreamBroken,
                EndKind way = EndKind::kOpen);
  // So are the ranks of the source's attempt and role that were never heard of.
  void MarkAbsent(const v1::Source& source);
  // Closes the open steps up to `through` over whoever has not delivered them.
  void CloseThrough(const std::string& run, uint32_t attempt, v1::Role role, int64_t through);
  // What a host may close over, by run: see Lag. Costs as much as there are ranks that lag.
  std::vector<Lag> Lagging(const std::string& run) const;
  std::vector<std::string> Runs() const;
  // Of the newest attempt; empty: the run is not known.
  std::vector<GroupProgress> Groups(const std::string& run) const;

  // No more input: closes every step and judges each run as a whole. Call once.
  void Finish();

  // Judges one run as a whole now (a live host: all its ranks said goodbye, or are gone). Forgets
  // its state when all said goodbye. Otherwise a rank that was out of reach may come back on its
  // stream, and the run goes on. If nothing came since the run was judged, forgets it: the host
  // bounds how many are kept (RunsOver).
  void FinishRun(const std::string& run);
  // The runs that are over and kept, by name.
  std::vector<std::string> RunsOver() const;
  bool Knows(const std::string& run) const;  // also one that is over and kept
  // Forgets one run without a word.
  void Drop(const std::string& run);
  // Closes the oldest steps of a run until what is open of it holds at most so many bytes.
  void MakeRoom(const std::string& run, uint64_t bytes);
  // Its rules that remember most judge it no further, until they remember at most so many bytes.
  void MakeRulesRoom(const std::string& run, uint64_t bytes);

  Coverage coverage() const;
  // What open steps hold: of a run, and of all.
  uint64_t open_bytes(const std::string& run) const;
  uint64_t open_bytes() const;
  // The run whose open steps hold most; empty: none holds any.
  std::string LargestRun() const;
  // The names that it keeps of a run: of sites, and of losses with their cause ("": a site).
  using OnName = std::function<void(const std::string& layer, const std::string& op,
                                    const std::string& cause)>;
  void ForEachName(const std::string& run, const OnName& on_name) const;
  // What its rules remember, and those of all runs, as they were weighed last.
  uint64_t rule_bytes(const std::string& run) const;
  uint64_t rule_bytes() const;
  // Rules that judge a run no further, of the runs that go on.
  uint64_t rules_set_aside() const;
  // Series that are stored and not judged, since a run has more than EngineConfig::most_series of
  // their role: of a run, and of all that go on.
  uint64_t series_left_out(const std::string& run) const;
  uint64_t series_left_out() const;
  // Steps that closed because their run held too much, of the runs that go on.
  uint64_t closed_for_room() const;
  // Newest closed step of a run; -1 before the first.
  int64_t closed_step(const std::string& run) const;

  // Everything that the engine remembers, evidence of open steps included: another engine that
  // reads it goes on as this one would. Not from within the callback. Equal states give equal
  // bytes.
  std::string Checkpoint() const;
  // The same bytes by pieces: it holds about as much as one rule remembers of one run.
  void Checkpoint(const Archive::Sink& sink) const;
  // Takes over the state of the engine that wrote `bytes`; this one must be fresh. InvalidArgument
  // when they are damaged, or were made with other rules, options, window or format: this engine is
  // fresh then still, and what it should know is to be replayed from the start.
  // FailedPrecondition when it is not fresh.
  absl::Status Restore(std::string_view bytes);

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline::rules
