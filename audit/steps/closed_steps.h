// Joins the evidence of all ranks for judges that are not rules of the engine, and shows each step
// when it is complete. Steps close by the engine's own code (rules/engine/run_state.h), so a
// watcher sees the same steps as the rules. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "audit/steps/step_watcher.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/engine/run_state.h"
#include "rules/engine/series.h"

namespace plumbline::audit {

class ClosedSteps {
 public:
  ClosedSteps();

  // `watcher` must outlive this. Call before the first batch.
  void Show(StepWatcher* watcher) { watchers_.push_back(watcher); }
  bool watched() const { return !watchers_.empty(); }

  // Declares that the process will be read to its end. Call before the first batch of its run.
  void Expect(const v1::Source& source) { expected_[source.run()].push_back(source); }
  // Takes a batch that the engine has accepted. It is held without a copy until its steps close.
  void Take(const std::shared_ptr<const v1::Batch>& batch);
  // Marks the process as gone: no step waits for it.
  void MarkGone(const v1::Source& source);
  // Closes all steps, ends all runs, and returns the verdicts of all watchers. The last call.
  std::vector<WatcherVerdict> Finish();

 private:
  rules::RunState& RunOf(const std::string& name);

  std::vector<StepWatcher*> watchers_;
  std::map<std::string, std::vector<v1::Source>> expected_;  // by run
  rules::SeriesSets sets_;
  std::map<std::string, std::unique_ptr<rules::RunState>> runs_;
  rules::OnClose on_close_;
};

}  // namespace plumbline::audit
