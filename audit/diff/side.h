// One side of plumb diff: recorded runs, each with its series, settings and times, and the audit of
// all of them.
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

// A run of one PATH. Two paths are two runs, even if their runs have the same name.
struct RecordedRun {
  std::string path, run;
  // The format of its files, and their place below `path`. Two output folders of one trainer have
  // the same places. Empty for formats that hold more than series.
  std::string format, place;
  // By name ("layer/op", or op alone): one value per step, ascending, of the lowest rank that has
  // the series. If a later attempt repeats a step, that attempt's value is kept. If a step has
  // several values, the last is kept.
  std::map<std::string, std::vector<SeriesPoint>> series;
  // Settings stated by the evidence, by "site: field". The first statement is kept.
  std::map<std::string, std::string> settings;
  std::map<std::string, double> seconds;  // seconds of spans, by kind
  uint64_t steps = 0;                     // steps that had spans
};

struct DiffSide {
  std::vector<std::string> paths;
  std::vector<RecordedRun> runs;  // in the order of the paths, then of their names
  AuditResult audit;
  SeriesRoles roles;      // roles of series set by the user
  uint64_t left_out = 0;  // number of values beyond the limits

  bool failed() const { return audit.inputs_failed(); }
};

// Reads the paths twice: for the series and for the audit. `options` are those of an audit, without
// paths. Returns RunAudit's errors.
absl::StatusOr<DiffSide> ReadSide(const std::vector<std::string>& paths, AuditOptions options = {});

// Limits per side; runs, series and values beyond them are counted.
inline constexpr uint64_t kMostDiffPoints = 20'000'000;
inline constexpr size_t kMostDiffSeries = 4096, kMostDiffSettings = 20'000, kMostDiffRuns = 1024,
                        kMostDiffSets = 65536;

}  // namespace plumbline::audit
