// The judging half of an audit: passes sources and single batches through the rule engine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "audit/session/audit.h"
#include "audit/session/rank_ends.h"
#include "audit/session/unknown_series.h"
#include "audit/steps/closed_steps.h"

namespace plumbline::audit {

// Not thread-safe.
class Judgement {
 public:
  // Returns InvalidArgument if rules or settings are wrong.
  static absl::StatusOr<std::unique_ptr<Judgement>> Create(const rules::EngineConfig& config,
                                                           bool collect_series);

  // Reads the sources in parallel order to their ends. `on_progress` may be empty; it is called
  // often, and continues from `progress`.
  void Read(std::vector<std::unique_ptr<Source>> sources,
            const std::function<void(const AuditProgress&)>& on_progress, AuditProgress progress);
  // Judges the sentences of a log: its end, if the run did not end well, and the messages of a loss
  // scaler. The run has the file's name, or is the only run. Call after Read.
  void ReportSentences(const std::string& path);
  // Adds one batch.
  absl::Status Add(v1::Batch batch);
  // Call between batches. Reports what Finish would report on series of no role, and on silent
  // ranks if `may` permits it. Returns false if an earlier report is no longer true, so that
  // everything must be judged again.
  bool ReportSoFar(const RankEnds::May& may);
  // True if ReportSoFar reported something. If everything is judged again, Finish does not report
  // it.
  bool reported_so_far() const { return !reported_so_far_.empty(); }
  // From now on keeps the ranks' times that are read, for the result.
  void KeepTimelines() { keep_timelines_ = true; }

  // From now on shows closed steps to `watcher`, whose verdicts are in the result. Call before
  // Read.
  void Show(StepWatcher* watcher) { closed_.Show(watcher); }

  const rules::Report& report() const { return result_.report; }
  uint64_t findings_reported() const {
    return findings_reported_;
  }  // number of verdicts with a finding so
     // far

  // Ends the input and judges each run as a whole. The last call.
  AuditResult Finish(std::deque<InputReport> inputs);

 private:
  Judgement() = default;
  void Take(const v1::Verdict& verdict);
  void TakeTimelines(const v1::Batch& batch);
  void TakeNewest(const v1::Batch& batch);
  void Note(const v1::Batch& batch);
  void EmitWatched();

  AuditResult result_;
  std::vector<v1::Verdict> unjudged_;  // verdicts on runs that were not judged, added when it is
                                       // known whether others were
  bool judged_any_ = false;
  bool keep_timelines_ = false;
  uint64_t findings_reported_ = 0;
  std::map<std::string, std::set<uint32_t>> attempts_;  // attempts of processes, by run
  std::map<std::string, int64_t> newest_;               // newest step of a series' rows, by run
  UnknownSeries unknown_{&result_.roles};
  RankEnds rank_ends_;
  std::set<std::string> reported_so_far_;  // run, rule, series or ranks, step
  ClosedSteps closed_;
  std::unique_ptr<rules::Engine> engine_;
};

}  // namespace plumbline::audit
