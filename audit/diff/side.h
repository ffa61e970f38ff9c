// One side of plumb diff: recorded runs, each with its series, settings and times, and what an
// audit says of all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

struct SeriesPoint {
  int64_t step = 0;
  double value = 0;  // may be NaN or infinite
};

// A run of one PATH. Two paths are two runs, also where their runs have one name.
struct RecordedRun {
  std::string path, run;
  // What wrote it: the format of its files, and where they lie below `path`, as two folders of one
  // trainer's output have it alike. Empty: of formats that hold more than series.
  std::string format, place;
  // By name ("layer/op", or op alone): one value a step, ascending. Of the lowest rank that has it;
  // a step that a later attempt repeats has that attempt's value, one that has several the last.
  std::map<std::string, std::vector<SeriesPoint>> series;
  // What the evidence says of how things were set up, as it first said it: by "site: field".
  std::map<std::string, std::string> settings;
  std::map<std::string, double> seconds;  // of spans, by kind
  uint64_t steps = 0;                     // that had spans
};

struct DiffSide {
  std::vector<std::string> paths;
  std::vector<RecordedRun> runs;  // in the order of the paths, then of their names
  AuditResult audit;
  SeriesRoles roles;      // what the user says of series
  uint64_t left_out = 0;  // values beyond what is kept

  bool failed() const { return audit.inputs_failed(); }
};

// Reads the paths twice: for the series, and for the audit. `options` is as for an audit, without
// paths. Errors are RunAudit's.
absl::StatusOr<DiffSide> ReadSide(const std::vector<std::string>& paths, AuditOptions options = {});

// Kept a side; what is beyond is counted.
inline constexpr uint64_t kMostDiffPoints = 20'000'000;
inline constexpr size_t kMostDiffSeries = 4096, kMostDiffSettings = 20'000, kMostDiffRuns = 1024,
                        kMostDiffSets = 65536;

}  // namespace plumbline::audit
