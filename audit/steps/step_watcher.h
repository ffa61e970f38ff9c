// Receives the closed steps of an audit, and reports verdicts at its end.
#pragma once

#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// A verdict on a run, of a rule that the engine does not run.
struct WatcherVerdict {
  std::string run;
  std::string rule;
  v1::Verdict verdict;
};

class StepWatcher {
 public:
  virtual ~StepWatcher() = default;

  // Called for each site of a closed step, in the order (attempt, step), then by site.
  virtual void TakeSite(const analysis::SiteStep& step) = 0;
  // Called after the last site of a closed step.
  virtual void EndStep(const analysis::StepEnd& step) = 0;
  // Called once for each run, when its input has ended.
  virtual void EndRun(const analysis::RunSummary& run) = 0;
  // Returns the verdicts. The last call.
  virtual std::vector<WatcherVerdict> Finish() = 0;
};

}  // namespace plumbline::audit
