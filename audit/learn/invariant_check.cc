#include "audit/learn/invariant_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostViolationsListed = 16;  // violations in the witness

}  // namespace

InvariantCheck::InvariantCheck(Invariants invariants)
    : invariants_(std::move(invariants)),
      meter_([this](const Subject& subject, double value, const MeterPlace& place) {
        Take(subject, value, place);
      }) {
  for (const Invariant& invariant : invariants_.list) by_subject_[invariant.subject] = &invariant;
}

void InvariantCheck::Take(const Subject& subject, double value, const MeterPlace& place) {
  const auto known = by_subject_.find(subject);
  if (known == by_subject_.end()) return;
  Run& run = runs_[*place.run];
  ++run.checked[subject];
  if (known->second->Holds(value)) return;
  run.last_violated = std::max(run.last_violated, place.step);
  run.first.try_emplace(subject, Violation{place.step, value, place.layer, place.op, place.ranks});
}

std::string InvariantCheck::Words(const Subject& subject, const Violation& violation) const {
  const Invariant& of = *by_subject_.at(subject);
  const std::string at = absl::StrCat(" in step ", violation.step);
  switch (subject.measure) {
    case Measure::kRange:
      return absl::StrFormat("%s is %.6g%s; healthy runs allow %.6g to %.6g", subject.of,
                             violation.value, at, of.low, of.high);
    case Measure::kRatio:
      return absl::StrFormat("%s over %s is %.6g%s; healthy runs allow %.6g to %.6g", subject.of,
                             subject.by, violation.value, at, of.low, of.high);
    case Measure::kNonFinite:
      return absl::StrCat(subject.of, " is NaN or infinite", at, "; in healthy runs it never was");
    case Measure::kStill:
      return absl::StrFormat("%s has not changed for %.0f steps%s; healthy runs allow %.0f",
                             subject.of, violation.value, at, of.high);
    case Measure::kFall:
      return absl::StrFormat("%s falls by %.6g%s; in healthy runs it never fell", subject.of,
                             violation.value, at);
    case Measure::kSpread:
      return absl::StrFormat("%s differs between ranks by %.6g%s; in healthy runs it was equal",
                             subject.of, violation.value, at);
    case Measure::kAlike:
      return absl::StrFormat(
          "%s has been the same on all ranks for %.0f steps%s; healthy runs allow %.0f", subject.of,
          violation.value, at, of.high);
    case Measure::kOrder:
      return absl::StrCat(subject.of, " comes after ", subject.by, at,
                          "; in healthy runs it came before");
  }
  return "";
}

// The subject that was violated first; of one step, the first by measure and name.
v1::Verdict InvariantCheck::FindingOf(const Run& run) const {
  const auto first =
      std::min_element(run.first.begin(), run.first.end(),
                       [](const auto& a, const auto& b) { return a.second.step < b.second.step; });
  const auto& [subject, violation] = *first;
  const size_t others = run.first.size() - 1;
  analysis::FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  std::string text = Words(subject, violation) + ".";
  if (others > 0) absl::StrAppend(&text, " Further violated invariants: ", others, ".");
  absl::StrAppend(&text, " Of ", invariants_.held_back, " healthy runs that were held back, ",
                  invariants_.alarms, " violated invariants of the others.");
  const Invariant& bounds = *by_subject_.at(subject);
  found.Title("the run violates invariants of healthy runs")
      .Explain(text)
      .Cause(NameOfMeasure(subject.measure), 0.5)
      .Measured(subject.of, violation.value)
      .Threshold(violation.value < bounds.low ? bounds.low : bounds.high,
                 absl::StrCat("learned from ", invariants_.runs, " healthy runs"))
      .Samples(run.checked.at(subject))
      .FalseAlarm("measured", invariants_.false_alarms())
      .Assume("the run has the configuration of the healthy runs")
      .At(violation.layer, violation.op, violation.step, run.last_violated, violation.ranks)
      .Fix(
          "Compare this run with a healthy one (plumb diff), from the step of the first "
          "violation.");
  std::vector<std::pair<int64_t, std::string>> list;
  for (const auto& [of, at] : run.first) list.emplace_back(at.step, Words(of, at));
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < std::min(list.size(), kMostViolationsListed); ++i)
    found.Witness(absl::StrFormat("violation %02d", i + 1), list[i].second);
  found.Witness("violated", static_cast<double>(run.first.size()));
  found.Witness("checked", static_cast<double>(run.checked.size()));
  found.Witness("false-alarm limit at 95 %", invariants_.false_alarm_limit());
  return found.Take();
}

void InvariantCheck::EndRun(const analysis::RunSummary& summary) {
  const Run& run = runs_[summary.run];
  v1::Verdict verdict;
  if (!run.first.empty()) {
    verdict = FindingOf(run);
  } else if (run.checked.empty()) {
    verdict = analysis::Inconclusive(
        "no-shared-series: the run has none of the series of the invariants in their steps");
  } else {
    verdict = analysis::Pass(absl::StrCat(run.checked.size(), " of ", invariants_.list.size(),
                                          " invariants were checked, and all held"));
  }
  if (run.first.empty()) {
    verdict.mutable_site()->set_step_first(summary.step_first);
    verdict.mutable_site()->set_step_last(summary.step_last);
  }
  verdicts_.push_back({summary.run, kRule, std::move(verdict)});
}

}  // namespace plumbline::audit
