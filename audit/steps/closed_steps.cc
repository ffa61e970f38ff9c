#include "audit/steps/closed_steps.h"

#include <iterator>
#include <set>
#include <string_view>
#include <utility>

namespace plumbline::audit {

ClosedSteps::ClosedSteps() : sets_([](const v1::Site&) { return true; }) {
  on_close_.site = [this](const rules::SiteStep& step) {
    for (StepWatcher* watcher : watchers_) watcher->TakeSite(step);
  };
  on_close_.step = [this](const rules::StepEnd& step) {
    for (StepWatcher* watcher : watchers_) watcher->EndStep(step);
  };
}

rules::RunState& ClosedSteps::RunOf(const std::string& name) {
  std::unique_ptr<rules::RunState>& run = runs_[name];
  if (run == nullptr) {
    run = std::make_unique<rules::RunState>(name, rules::RunState::Options{}, &sets_);
    for (const v1::Source& source : expected_[name]) run->Expect(source);
  }
  return *run;
}

void ClosedSteps::Take(const std::shared_ptr<const v1::Batch>& batch) {
  if (watchers_.empty()) return;
  sets_.Declare(*batch);
  std::set<std::string_view> seen;  // a batch may hold several runs
  for (const v1::Source& source : batch->sources()) {
    if (seen.insert(source.run()).second) RunOf(source.run()).Take(batch, on_close_);
  }
}

void ClosedSteps::MarkGone(const v1::Source& source) {
  const auto known = runs_.find(source.run());
  if (known != runs_.end())
    known->second->MarkGone(source, rules::LateCause::kStreamBroken, on_close_);
}

std::vector<WatcherVerdict> ClosedSteps::Finish() {
  for (const auto& [name, run] : runs_) {
    run->CloseAll(on_close_);
    for (StepWatcher* watcher : watchers_) watcher->EndRun(run->Summarize());
  }
  std::vector<WatcherVerdict> verdicts;
  for (StepWatcher* watcher : watchers_) {
    std::vector<WatcherVerdict> of = watcher->Finish();
    std::move(of.begin(), of.end(), std::back_inserter(verdicts));
  }
  return verdicts;
}

}  // namespace plumbline::audit
