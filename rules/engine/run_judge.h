// Shows closed steps of a run to its rules, completes and counts their verdicts, and passes them to
// the host.
//
// Calls for different runs may be made at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rules/engine/active_rules.h"
#include "rules/engine/engine.h"
#include "rules/engine/engine_runs.h"
#include "rules/suppressions.h"

namespace plumbline::rules {

class RunJudge {
 public:
  // Callbacks to the host. All but `verdict` may be empty.
  struct Host {
    Engine::OnVerdict verdict;
    Engine::OnSeries series;
    Engine::OnLate late;
    Engine::OnLost lost;
    Engine::OnWhole whole;
  };

  // `active` must outlive this. The rules of a run judge `most_series` series of a role.
  RunJudge(const std::vector<ActiveRule>* active, uint64_t most_series, Engine::OnVerdict verdict)
      : active_(active), most_series_(most_series), host_{.verdict = std::move(verdict)} {}

  Host& host() { return host_; }
  Suppressor& suppressions() { return suppressions_; }
  const Suppressor& suppressions() const { return suppressions_; }

  // Return the callbacks that judge steps of the run as they close, and that report a rule which
  // remembers too much. `run` must outlive them.
  OnClose Judging(EngineRun& run);
  RunRules::OnSetAside SettingAside(EngineRun& run);

  // Judges the run as a whole. `over`: no more evidence can arrive.
  void JudgeWhole(EngineRun& run, bool over);
  // Reports how processes ended. `findings`: only if that is a finding.
  void ReportEnds(EngineRun& run, const RunEnds& ends, bool findings);
  // Reports ranks that sent nothing so far (meta/probe-coverage).
  void ReportAbsent(EngineRun& run);
  void ReportExpiredSuppressions(EngineRun& run);
  // Adds a verdict of a rule on no single step.
  void Add(EngineRun& run, const char* rule, v1::Verdict verdict);

  // Numbers of verdicts; part of a checkpoint.
  uint64_t judged() const { return judged_; }
  uint64_t inconclusive() const { return inconclusive_; }
  void SetCounts(uint64_t judged, uint64_t inconclusive) {
    judged_ = judged;
    inconclusive_ = inconclusive;
  }

 private:
  class Sink;

  template <typename What>
  void Each(EngineRun& run, const SiteStep* step, const What& what);
  template <typename What>
  void EachReader(EngineRun& run, const SiteStep& step, const What& what);
  std::function<void(const StepRows&)> JudgingRows(EngineRun& run);
  void JudgeLate(EngineRun& run, const std::string& cause, uint64_t items);
  void ReportFullSeries(EngineRun& run);
  void ReportSeries(EngineRun& run, const JudgedSeries::LeftOut& of, const std::string& reason);
  void ReportSuppressions(EngineRun& run, std::vector<v1::Verdict> verdicts);
  void Count(EngineRun& run, const v1::Verdict& verdict);
  bool IsActive(std::string_view rule) const;

  const std::vector<ActiveRule>* const active_;
  const uint64_t most_series_;
  Host host_;
  Suppressor suppressions_;
  std::atomic<uint64_t> judged_{0};
  std::atomic<uint64_t> inconclusive_{0};
};

}  // namespace plumbline::rules
