// The offline audit: inputs through readers and the rule engine into a report.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/readers/input/reader.h"
#include "audit/session/selection.h"
#include "audit/session/series_collector.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"

namespace plumbline::audit {

struct AuditOptions {
  std::vector<std::string> paths;
  const Reader* forced = nullptr;  // nullptr: formats are recognised by content
  const Reader* mapped = nullptr;  // of the user's own format: asked before all others
  ReaderOptions readers;
  rules::EngineConfig engine;      // its roles of series are named in the report, too
  bool collect_series = false;     // for a format that plots them
  bool collect_timelines = false;  // for --timeline
};

// What was seen of one rank's time.
struct SeenTimeline {
  std::string run;
  uint32_t rank = 0;
  std::string layer;  // "": of the process's main GPU
  v1::Timeline timeline;
};

// What a renderer writes.
struct AuditResult {
  std::deque<InputReport> inputs;
  SeriesRoles roles;  // what the user said of the inputs' series
  rules::Report report;
  rules::Coverage coverage;
  std::vector<std::string> notes;                // on the inputs as a whole, for people
  bool nothing_there = false;                    // every path that was named leads nowhere
  bool judged_any = true;                        // there is a verdict, even an inconclusive one
  SeriesCollector series;                        // empty unless it was asked for
  std::vector<SeenTimeline> timelines;           // alike; in the order of reading
  Selection selection;                           // of the findings of `report`
  std::vector<rules::Suppression> suppressions;  // that were asked for

  // Those that are reported, in the report's order.
  std::vector<const v1::Finding*> findings() const { return selection.Of(report.findings()).shown; }
  bool inputs_failed() const;
};

struct AuditProgress {
  size_t files_done = 0, files = 0;
  uint64_t bytes_done = 0, bytes = 0;
};

// InvalidArgument when rules or settings are wrong, before anything is read. Whatever is wrong with
// the inputs is in the result: what could be read is judged. `on_progress` is called often.
absl::StatusOr<AuditResult> RunAudit(const AuditOptions& options,
                                     const std::function<void(const AuditProgress&)>& on_progress);

}  // namespace plumbline::audit
