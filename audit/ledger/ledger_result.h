// A ledger, judged: what the renderers write.
#pragma once

#include <vector>

#include "audit/ledger/ledger_file.h"
#include "audit/render/text_util.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

struct LedgerResult {
  LedgerFile file;
  ledger::Allowances allowances;
  ledger::Estimate estimate;
  std::vector<v1::Verdict> verdicts;  // of the rules ledger/*, in the register's order
  std::vector<bool> flagged;          // by multiplier: a finding of level warning or error names it
  ledger::Product without_flagged;    // as if they were in no ledger
  std::vector<ledger::NextRuns> next;  // the most narrowing first

  std::vector<const v1::Finding*> findings() const;
};

// InvalidArgument, "FILE:LINE: expected ...": the baseline's loss falls with no exponent that fits.
absl::StatusOr<LedgerResult> JudgeLedger(LedgerFile file, const ledger::Allowances& allowances);

// The verdicts of one rule each; the multiplier in site.op. They name no run of their own.
void JudgeScales(const LedgerResult& result, std::vector<v1::Verdict>* out);   // one-seed, small
void JudgeStack(const LedgerResult& result, std::vector<v1::Verdict>* out);    // not-on-stack
void JudgeReports(const LedgerResult& result, std::vector<v1::Verdict>* out);  // open-findings
void JudgeLeaks(const LedgerResult& result, std::vector<v1::Verdict>* out);    // evaluation-leak
void JudgeClaims(const LedgerResult& result, std::vector<v1::Verdict>* out);   // overstated
void JudgeScaleBias(const LedgerResult& result, std::vector<v1::Verdict>* out);

// Fills in rule, place and fingerprint. `op`: a multiplier's name, "stack", or empty for the whole.
v1::Verdict LedgerVerdict(const char* rule, const std::string& op, v1::Verdict verdict);

std::string LedgerText(const LedgerResult& result, const TextStyle& style);
// Schema "plumbline.ledger/1". Strict JSON, ends with a newline.
std::string LedgerJson(const LedgerResult& result);

}  // namespace plumbline::audit
