// A judged ledger. The renderers write it.
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
  std::vector<v1::Verdict> verdicts;  // of the rules ledger/*, in the order of registration
  std::vector<bool> flagged;          // for each multiplier: named by a finding of level warning or
                                      // error
  ledger::Product without_flagged;    // the product without the flagged multipliers
  std::vector<ledger::NextRuns> next;  // the runs that narrow the interval most come first

  std::vector<const v1::Finding*> findings() const;
};

// Judges a ledger. Returns InvalidArgument "FILE:LINE: expected ..." if the baseline's loss does
// not fall with an exponent that can be fitted.
absl::StatusOr<LedgerResult> JudgeLedger(LedgerFile file, const ledger::Allowances& allowances);

// Each function appends the verdicts of one rule, with the multiplier in site.op.
void JudgeScales(const LedgerResult& result, std::vector<v1::Verdict>* out);   // one-seed, small
void JudgeStack(const LedgerResult& result, std::vector<v1::Verdict>* out);    // not-on-stack
void JudgeReports(const LedgerResult& result, std::vector<v1::Verdict>* out);  // open-findings
void JudgeLeaks(const LedgerResult& result, std::vector<v1::Verdict>* out);    // evaluation-leak
void JudgeClaims(const LedgerResult& result, std::vector<v1::Verdict>* out);   // overstated
void JudgeScaleBias(const LedgerResult& result, std::vector<v1::Verdict>* out);

// Sets the rule, site and fingerprint of a verdict. `op` is a multiplier's name, "stack", or empty
// for the whole ledger.
v1::Verdict LedgerVerdict(const char* rule, const std::string& op, v1::Verdict verdict);

std::string LedgerText(const LedgerResult& result, const TextStyle& style);
// Returns strict JSON of schema "plumbline.ledger/1" that ends with a newline.
std::string LedgerJson(const LedgerResult& result);

}  // namespace plumbline::audit
