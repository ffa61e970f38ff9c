// Holds runs to invariants that plumb learn wrote (plumb audit --invariants).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "audit/learn/invariants.h"
#include "audit/learn/meter.h"
#include "audit/steps/step_watcher.h"

namespace plumbline::audit {

// Gives one verdict per run, of rule user/invariants: a finding at the first violation, with the
// others; a pass if all held; inconclusive if the run has none of the series. Not thread-safe.
class InvariantCheck : public StepWatcher {
 public:
  static constexpr char kRule[] = "user/invariants";

  explicit InvariantCheck(Invariants invariants);

  void TakeSite(const analysis::SiteStep& step) override { meter_.TakeSite(step); }
  void EndStep(const analysis::StepEnd& step) override { meter_.EndStep(step); }
  void EndRun(const analysis::RunSummary& run) override;
  std::vector<WatcherVerdict> Finish() override { return std::move(verdicts_); }

 private:
  struct Violation {
    int64_t step = 0;
    double value = 0;
    std::string layer, op;
    std::vector<uint32_t> ranks;
  };
  struct Run {
    std::map<Subject, uint64_t> checked;  // numbers, by subject
    std::map<Subject, Violation> first;   // the first violation of each
    int64_t last_violated = 0;
  };

  void Take(const Subject& subject, double value, const MeterPlace& place);
  v1::Verdict FindingOf(const Run& run) const;
  std::string Words(const Subject& subject, const Violation& violation) const;

  const Invariants invariants_;
  std::map<Subject, const Invariant*> by_subject_;
  std::map<std::string, Run> runs_;
  std::vector<WatcherVerdict> verdicts_;
  Meter meter_;
};

}  // namespace plumbline::audit
