#include "rules/bases/drift_rule.h"

#include <algorithm>

namespace plumbline::rules {
namespace {

// The cause "noise" was reported for a record that seemed true. If the record was found untrue
// since, "unknown" gets a higher confidence than that cause.
void Withdraw(const DriftSite& site, const v1::Cause& reported, v1::Finding& finding) {
  constexpr double kSurer = 0.05;
  v1::Cause& cause = *finding.mutable_cause();
  if (reported.id() == "noise" && cause.id() == "unknown" && site.tests.record_failed())
    cause.set_confidence(reported.confidence() + kSurer);
}

}  // namespace

void DriftRule::Persist(Archive& archive) {
  archive.Version(1);
  archive(run_, reported_);
}

void DriftRule::Judge(const SiteStep& step, VerdictSink& out) {
  DriftRun& run = run_.Take(step);
  for (const DriftRun::Key& key : run.touched()) {
    const DriftSite& site = run.sites().at(key);
    Reported& reported = reported_[key];
    const uint64_t tokens = site.statistics.judged;
    const size_t steps = site.statistics.series.steps();
    if (tokens < std::max(reported.next_tokens, first_look()) &&
        steps < std::max<size_t>(reported.next_steps, 16))
      continue;
    reported.next_tokens = 2 * tokens;
    reported.next_steps = steps + steps / 4 + 1;
    Look(site, false, out);
  }
}

void DriftRule::JudgeRun(const RunSummary& run, VerdictSink& out) {
  for (const auto& [key, site] : run_.Finish(run).sites()) Look(site, true, out);
}

void DriftRule::Look(const DriftSite& site, bool last, VerdictSink& out) {
  Reported& reported = reported_[{site.layer, site.op}];
  v1::Verdict verdict = JudgeSite(site);
  if (!verdict.has_site()) site.Place(verdict);
  if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE && site.keys_differ)
    verdict.set_reason(site.KeyDoubt());
  if (verdict.kind() != v1::Verdict::KIND_FINDING) {
    if (last && reported.level == v1::LEVEL_UNSPECIFIED) out.Add(std::move(verdict));
    return;
  }
  Withdraw(site, reported.cause, *verdict.mutable_finding());
  const v1::Level level = verdict.finding().level();
  const v1::Cause& cause = verdict.finding().cause();
  const bool surer =
      cause.id() != reported.cause.id() && cause.confidence() > reported.cause.confidence();
  if (level < reported.level || (level == reported.level && !surer)) return;
  reported.level = level;
  reported.cause = cause;
  out.Add(std::move(verdict));
}

}  // namespace plumbline::rules
