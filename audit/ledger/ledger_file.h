// A ledger as a file (TOML; docs/ledger.md).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/ledger/ledger.h"

namespace plumbline::audit {

// A finding of an audit that a run's `report` names.
struct OpenFinding {
  std::string rule, level, title;
};

struct LedgerFile {
  std::string path;
  ledger::Ledger ledger;
  std::vector<std::string> on;  // by multiplier: what it was measured on top of, in words
  // By run: was a report named, and its findings on causality and precision of level warning or
  // error that nobody suppressed.
  std::vector<bool> has_report;
  std::vector<std::vector<OpenFinding>> open;
  int baseline_line = 0;
};

// The first thing that is wrong, as "FILE:LINE: expected ...". What it gives keeps every promise
// that analysis/ledger/input.h asks for; each comparison has a scale in common, the baseline two.
absl::StatusOr<LedgerFile> ReadLedger(const std::string& path);
absl::StatusOr<LedgerFile> ParseLedger(const std::string& text, const std::string& path);

// The open findings of a report of plumb audit; in words what is wrong with it.
absl::StatusOr<std::vector<OpenFinding>> ReadOpenFindings(const std::string& path);

}  // namespace plumbline::audit
