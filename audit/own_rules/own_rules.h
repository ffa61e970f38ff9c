// Rules of the user in Python files (plumb audit --rule-file). Each file runs in a child process. A
// file that crashes, hangs, floods or prints garbage is stopped: this is a problem of the file's
// report, its rules are inconclusive, and the audit continues.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "analysis/role/role.h"
#include "audit/own_rules/rule_child.h"
#include "audit/readers/input/reader.h"
#include "audit/steps/step_watcher.h"

namespace plumbline::audit {

struct OwnRulesOptions {
  std::vector<std::string> files;
  std::string python = "python3";
  std::string package;  // folder of the Python package plumbline
  RuleLimits limits;
  SeriesRoles roles;  // stated by the user
};

// Not thread-safe.
class OwnRules : public StepWatcher {
 public:
  // Starts the files' children, and waits until each has declared its rules.
  explicit OwnRules(const OwnRulesOptions& options);
  ~OwnRules() override;

  void TakeSite(const analysis::SiteStep& step) override;
  void EndStep(const analysis::StepEnd& step) override;
  void EndRun(const analysis::RunSummary& run) override;
  std::vector<WatcherVerdict> Finish() override;

  // Moves the files' reports to the end of `reports`. Call after Finish.
  void TakeReports(std::deque<InputReport>* reports);

 private:
  class File;

  const SeriesRoles roles_;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace plumbline::audit
