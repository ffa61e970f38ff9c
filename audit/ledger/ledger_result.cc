#include "audit/ledger/ledger_result.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::audit {

std::vector<const v1::Finding*> LedgerResult::findings() const {
  std::vector<const v1::Finding*> found;
  for (const v1::Verdict& verdict : verdicts) {
    if (verdict.kind() == v1::Verdict::KIND_FINDING) found.push_back(&verdict.finding());
  }
  return found;
}

v1::Verdict LedgerVerdict(const char* rule, const std::string& op, v1::Verdict verdict) {
  verdict.set_rule(rule);
  verdict.mutable_site()->set_op(op);
  if (verdict.kind() != v1::Verdict::KIND_FINDING) return verdict;
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_rule(rule);
  *finding.mutable_site() = verdict.site();
  finding.set_fingerprint(analysis::Fingerprint(rule, verdict.site()));
  return verdict;
}

absl::StatusOr<LedgerResult> JudgeLedger(LedgerFile file, const ledger::Allowances& allowances) {
  absl::StatusOr<ledger::Estimate> estimate = ledger::EstimateLedger(file.ledger, allowances);
  if (!estimate.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ":", file.baseline_line, ": ", estimate.status().message()));
  LedgerResult result{std::move(file), allowances, *std::move(estimate), {}, {}, {}, {}};
  JudgeScales(result, &result.verdicts);
  JudgeStack(result, &result.verdicts);
  JudgeReports(result, &result.verdicts);
  JudgeLeaks(result, &result.verdicts);
  JudgeClaims(result, &result.verdicts);
  JudgeScaleBias(result, &result.verdicts);
  const std::vector<ledger::Multiplier>& multipliers = result.file.ledger.multipliers;
  for (const ledger::Multiplier& m : multipliers) {
    bool flagged = false;
    for (const v1::Finding* finding : result.findings())
      flagged |= finding->site().op() == m.name && finding->level() >= v1::LEVEL_WARNING;
    result.flagged.push_back(flagged);
  }
  result.without_flagged =
      ledger::ProductWithout(result.file.ledger, allowances, result.estimate, result.flagged);
  result.next = ledger::RankNextRuns(result.file.ledger, allowances, result.estimate);
  return result;
}

}  // namespace plumbline::audit
