#include "rules/bases/drift_rule.h"

#include <algorithm>
#include <string>
#include <utility>

namespace plumbline::rules {
namespace {

// The cause "noise" was reported for drift without any mark. If a mark was found since that does
// not show the cause, "unknown" gets a higher confidence than that cause.
void Withdraw(const v1::Cause& reported, v1::Finding& finding) {
  constexpr double kSurer = 0.05;
  v1::Cause& cause = *finding.mutable_cause();
  if (reported.id() == "noise" && cause.id() == "unknown")
    cause.set_confidence(reported.confidence() + kSurer);
}

}  // namespace

void StateCourse(const DriftCourse& course, const DriftSite& site, v1::Verdict& verdict) {
  v1::Finding& finding = *verdict.mutable_finding();
  std::string text = finding.explanation();
  if (!text.empty() && !text.ends_with('.')) text += '.';
  finding.set_explanation(text + course.Words());
  google::protobuf::Struct& details = *verdict.mutable_details();
  course.Describe(details);
  Put(details, "steps_judged", static_cast<double>(site.batches));
  if (finding.has_details()) *finding.mutable_details() = details;
  v1::FindingSite& steps = *verdict.mutable_site();
  if (course.ended && steps.step_last() >= course.end_step)
    steps.set_step_last(std::max(steps.step_first(), course.end_step - 1));
}

void DriftRule::Persist(Archive& archive) {
  archive.Version(2, 2);
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

bool DriftRule::Keep(v1::Verdict verdict, v1::Verdict& kept) {
  const bool first = kept.kind() != v1::Verdict::KIND_FINDING;
  const v1::Level level = verdict.finding().level();
  const v1::Cause& cause = verdict.finding().cause();
  const v1::Cause& before = kept.finding().cause();
  const bool louder = first || level > kept.finding().level();
  const bool surer = cause.id() != before.id() && cause.confidence() > before.confidence();
  if (!louder && level < kept.finding().level()) {
    // The worst look seemed noise. If a cause is found now, it is stated at that look's level.
    if (before.id() != "noise" || cause.id() == "unknown" || !surer) return false;
    verdict.mutable_finding()->set_level(kept.finding().level());
  }
  if (!louder && !surer && cause.id() != before.id()) return false;
  kept = std::move(verdict);
  return louder || surer;
}

void DriftRule::Look(const DriftSite& site, bool last, VerdictSink& out) {
  Reported& reported = reported_[{site.layer, site.op}];
  v1::Verdict verdict = JudgeSite(site);
  if (!verdict.has_site()) site.Place(verdict);
  if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE && site.keys_differ)
    verdict.set_reason(site.KeyDoubt());
  const bool had = reported.kept.kind() == v1::Verdict::KIND_FINDING;
  const bool found = verdict.kind() == v1::Verdict::KIND_FINDING;
  if (!found && !had) {
    if (last) out.Add(std::move(verdict));
    return;
  }
  bool changed = false;
  if (found) {
    Withdraw(reported.kept.finding().cause(), *verdict.mutable_finding());
    changed = Keep(std::move(verdict), reported.kept);
  }
  const DriftCourse course = follows_course() ? site.Course() : DriftCourse();
  if (!(reported.worst > 0)) reported.worst = course.worst.k3;
  changed |= course.ended != reported.ended || course.worst.k3 > 2 * reported.worst;
  const bool news = last && follows_course() && reported.batches != site.batches;
  if (!changed && !news) return;
  reported.batches = site.batches;
  reported.ended = course.ended;
  reported.worst = std::max(reported.worst, course.worst.k3);
  v1::Verdict report = reported.kept;
  if (follows_course()) StateCourse(course, site, report);
  out.Add(std::move(report));
}

}  // namespace plumbline::rules
