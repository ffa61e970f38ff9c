#include "rules/bases/drift_rule.h"

#include <algorithm>

namespace plumbline::rules {
namespace {

// The cause "noise" was reported for a record that seemed true. If the record was found untrue
// since, "unknown" gets a higher confidence than that cause.
void Withdraw(const DriftSite& site, const v1::Cause& told, v1::Finding& finding) {
  constexpr double kSurer = 0.05;
  v1::Cause& cause = *finding.mutable_cause();
  if (told.id() == "noise" && cause.id() == "unknown" && site.tests.record_failed())
    cause.set_confidence(told.confidence() + kSurer);
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
    Reported& told = reported_[key];
    const uint64_t tokens = site.statistics.judged;
    const size_t steps = site.statistics.series.steps();
    if (tokens < std::max(told.next_tokens, first_look()) &&
        steps < std::max<size_t>(told.next_steps, 16))
      continue;
    told.next_tokens = 2 * tokens;
    told.next_steps = steps + steps / 4 + 1;
    Look(site, false, out);
  }
}

void DriftRule::JudgeRun(const RunSummary& /*run*/, VerdictSink& out) {
  for (const auto& [key, site] : run_.Finish().sites()) Look(site, true, out);
}

void DriftRule::Look(const DriftSite& site, bool last, VerdictSink& out) {
  Reported& told = reported_[{site.layer, site.op}];
  v1::Verdict verdict = JudgeSite(site);
  if (!verdict.has_site()) site.Place(verdict);
  if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE && site.keys_differ)
    verdict.set_reason(site.KeyDoubt());
  if (verdict.kind() != v1::Verdict::KIND_FINDING) {
    if (last && told.level == v1::LEVEL_UNSPECIFIED) out.Add(std::move(verdict));
    return;
  }
  Withdraw(site, told.cause, *verdict.mutable_finding());
  const v1::Level level = verdict.finding().level();
  const v1::Cause& cause = verdict.finding().cause();
  const bool surer = cause.id() != told.cause.id() && cause.confidence() > told.cause.confidence();
  if (level < told.level || (level == told.level && !surer)) return;
  told.level = level;
  told.cause = cause;
  out.Add(std::move(verdict));
}

}  // namespace plumbline::rules
