// The judging half of an audit: sources and single batches through the rule engine into a result.
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

namespace plumbline::audit {

// Not thread-safe.
class Judgement {
 public:
  // InvalidArgument when rules or settings are wrong.
  static absl::StatusOr<std::unique_ptr<Judgement>> Create(const rules::EngineConfig& config,
                                                           bool collect_series);

  // The sources side by side, to their ends. `on_progress`, which may be empty, is called often,
  // with `progress` carried on.
  void Read(std::vector<std::unique_ptr<Source>> sources,
            const std::function<void(const AuditProgress&)>& on_progress, AuditProgress progress);
  // What a log says in sentences: how it ends, where it does not end well, and of its loss scaler.
  // Its run is called as the file is, or is the only one. After Read.
  void TellSentences(const std::string& path);
  // One batch more.
  absl::Status Add(v1::Batch batch);
  // Between batches: reports what Finish would report of series of no role, and of ranks that fell
  // silent if `may` permits it. False: what was reported so holds no more, so that all is to be
  // judged anew.
  bool ReportSoFar(const RankEnds::May& may);
  // ReportSoFar reported something, which is not reported again by Finish if all is judged anew.
  bool reported_so_far() const { return !reported_so_far_.empty(); }
  // From now on what is read of ranks' times is kept for the result.
  void KeepTimelines() { keep_timelines_ = true; }

  const rules::Report& report() const { return result_.report; }
  uint64_t findings_told() const { return findings_told_; }  // verdicts that are one, so far

  // No more input: each run is judged as a whole. Once, and the last call.
  AuditResult Finish(std::deque<InputReport> inputs);

 private:
  Judgement() = default;
  void Take(const v1::Verdict& verdict);
  void TakeTimelines(const v1::Batch& batch);
  void TakeNewest(const v1::Batch& batch);
  void Note(const v1::Batch& batch);

  AuditResult result_;
  std::vector<v1::Verdict> unjudged_;  // runs, told once it is known whether others were judged
  bool judged_any_ = false;
  bool keep_timelines_ = false;
  uint64_t findings_told_ = 0;
  std::map<std::string, std::set<uint32_t>> attempts_;  // of processes, by run
  std::map<std::string, int64_t> newest_;               // step of a series' rows, by run
  UnknownSeries unknown_{&result_.roles};
  RankEnds rank_ends_;
  std::set<std::string> reported_so_far_;  // run, rule, series or ranks, step
  std::unique_ptr<rules::Engine> engine_;
};

}  // namespace plumbline::audit
