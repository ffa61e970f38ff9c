// Runs the offline audit: inputs pass through readers and the rule engine into a report.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/own_rules/own_rules.h"
#include "audit/readers/input/reader.h"
#include "audit/session/selection.h"
#include "audit/session/series_collector.h"
#include "audit/steps/step_watcher.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"

namespace plumbline::audit {

struct AuditOptions {
  std::vector<std::string> paths;
  const Reader* forced = nullptr;  // if nullptr, formats are recognised by content
  const Reader* mapped = nullptr;  // reads the user's own format: tried before all others
  ReaderOptions readers;
  rules::EngineConfig engine;          // its roles of series are also in the report
  OwnRulesOptions own_rules;           // rule files of the user; none if it names no file
  std::vector<StepWatcher*> watchers;  // further judges of the closed steps; not owned
  bool collect_series = false;         // for a format that plots them
  bool collect_timelines = false;      // for --timeline
};

// The timeline of one rank.
struct SeenTimeline {
  std::string run;
  uint32_t rank = 0;
  std::string layer;  // "" for the process's main GPU
  v1::Timeline timeline;
};

// The result of an audit. A renderer writes it.
struct AuditResult {
  std::deque<InputReport> inputs;
  SeriesRoles roles;  // roles of the inputs' series that the user set
  rules::Report report;
  rules::Coverage coverage;
  std::vector<std::string> notes;                // on the inputs as a whole, for display
  bool nothing_there = false;                    // no named path exists
  bool judged_any = true;                        // there is a verdict (an inconclusive one counts)
  SeriesCollector series;                        // empty unless requested
  std::vector<SeenTimeline> timelines;           // empty unless requested; in reading order
  Selection selection;                           // selects findings of `report`
  std::vector<rules::Suppression> suppressions;  // the requested suppressions

  // Returns the findings that are reported, in the report's order.
  std::vector<const v1::Finding*> findings() const { return selection.Of(report.findings()).shown; }
  bool inputs_failed() const;
};

struct AuditProgress {
  size_t files_done = 0, files = 0;
  uint64_t bytes_done = 0, bytes = 0;
};

// Runs an audit. Returns InvalidArgument if rules or settings are wrong, before anything is read.
// Problems of the inputs are in the result; the readable part is judged. `on_progress` is called
// often.
absl::StatusOr<AuditResult> RunAudit(const AuditOptions& options,
                                     const std::function<void(const AuditProgress&)>& on_progress);

}  // namespace plumbline::audit
