// Reads a ledger from a file (TOML; docs/ledger.md).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calculators/ledger/ledger.h"

namespace plumbline::audit {

// A finding in the audit report that a run names.
struct OpenFinding {
  std::string rule, level, title;
};

struct LedgerFile {
  std::string path;
  ledger::Ledger ledger;
  std::vector<std::string> on;  // for each multiplier: the multipliers that were active when it was
                                // measured, as text
  // For each run: whether it names a report, and the report's findings on causality and precision
  // of level warning or error that are not suppressed.
  std::vector<bool> has_report;
  std::vector<std::vector<OpenFinding>> open;
  int baseline_line = 0;
};

// Reads a ledger. Returns the first mistake as "FILE:LINE: expected ...". The result meets all
// conditions of calculators/ledger/input.h; the arms of each comparison share a scale, and the
// baseline has two.
absl::StatusOr<LedgerFile> ReadLedger(const std::string& path);
absl::StatusOr<LedgerFile> ParseLedger(const std::string& text, const std::string& path);

// Returns the open findings of a report of plumb audit, or an error that describes the fault of the
// report.
absl::StatusOr<std::vector<OpenFinding>> ReadOpenFindings(const std::string& path);

}  // namespace plumbline::audit
