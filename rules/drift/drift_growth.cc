#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "rules/bases/drift_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/drift-growth

Drift between inference and training grows over the run.

**Why.** Noise of constant size averages out. But the drift grows by a few per cent per step if a cache or the engine's
scales become out of date, or if the policy's entropy falls below the engine's resolution. A growth of 3 % per step cannot
be seen in a plot of 20 steps, and is 19-fold after 100 steps.

**Bad.** `since step 31 the mean of min(d^2, 1/4) rose from 6.1e-4 to 1.9e-3 (alarm at step 52)`.

**Good.** `R reached 240 of a million in 400 steps`.

**How to fix it.** The fix depends on the cause that the finding names. A reset at a restart is a sign of a
cache; growth with the lag, of `drift/staleness`; growth with the policy's sharpness, of 16-bit logits.

**What it checks.** Two bounded rates of each step, over the tokens of one version lag (the commonest): the share
with |d| > ln 2, and the mean of min(d², ¼). An e-detector (Shiryaev–Roberts form) accumulates evidence that
they rose, and forgets evidence against it: R = (R + 1)·e, alarm when R reaches a million.
- *With declared ceilings* e bets on the rates against them. Take the ceilings from a separate calibration run: the
  details of a pass print 1.25·(mean + 3 standard errors) as `tail_ceiling` and `square_ceiling`. An estimate from the
  same run would break the promise.
- *Without*, each step is ranked among its past; e is made of the rank's p-value. Exact for exchangeable steps. It
  alarms only where the rate has also risen by a quarter.
If one jump explains the growth, `drift/missed-sync` reports it, and this rule does not repeat it. Without recorded
versions that rule cannot judge, so this one reports the jump and its step.

**Strength.** `statistical`: while nothing grows, the mean number of steps to a false alarm is at least a million
(R − t is a supermartingale). A run length, not a probability: a run of 1,000 steps alarms falsely with a probability
of at most about 1e-3.

**Inconclusive when** fewer than 20 steps have tokens of the lag (`few-steps`), during a run, while one jump can still explain
a rise (`waiting`), tokens of equal log μ have less than half of a jump, as where a harder task makes tokens rarer
(`other-tokens`), the record is not true (`record-invalid`, `supports-differ`),
both columns are the same numbers (`same-numbers`), or the sides redacted their ids under different keys (`keys-differ`).

**What it cannot see.** Growth that was complete before the run began; without ceilings, growth in the first ten
steps or so, and drift that only changes with what is sampled (steps of changing tasks are not exchangeable: give
ceilings).

**Cost.** One sorted insertion per step.

**Sources.** Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection",
2022; Vovk et al., "Retrain or not retrain: conformal test martingales for change-point detection", 2021.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "tail-ceiling",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of tokens with |d| > ln 2",
     .default_value = "0",
     .reason = "0: not declared; take it from a calibration run's details",
     .low = 0,
     .high = 1},
    {.name = "square-ceiling",
     .type = OptionInfo::Type::kNumber,
     .unit = "mean of min(d^2, 1/4)",
     .default_value = "0",
     .reason = "0: not declared; take it from a calibration run's details",
     .low = 0,
     .high = 0.25},
};

constexpr RuleInfo kInfo = {
    "drift/drift-growth", "drift grows over the run", v1::LEVEL_WARNING, "0.1.0", kPage, kOptions};

constexpr double kRunLength = 1e6;
constexpr size_t kFewSteps = 20;
constexpr double kMaterial = 1.25;  // equal to the factor of the ceilings

class DriftGrowth : public DriftRule {
 public:
  explicit DriftGrowth(const Options& options)
      : tail_ceiling_(options.Number("tail-ceiling")),
        square_ceiling_(options.Number("square-ceiling")) {}

 protected:
  v1::Verdict JudgeSite(const DriftSite& site) const override {
    v1::Verdict verdict = Judged(site);
    AssumeDrift(site, verdict);
    return verdict;
  }

 private:
  bool declared() const { return tail_ceiling_ > 0 || square_ceiling_ > 0; }

  v1::Verdict Judged(const DriftSite& site) const {
    if (const std::string doubt = site.RecordDoubt(); !doubt.empty()) return Inconclusive(doubt);
    const DriftSeries& series = site.statistics.series;
    const int64_t lag = series.CommonLag();
    const std::vector<DriftPoint> points = series.At(lag);
    if (points.size() < kFewSteps) {
      return Inconclusive(
          absl::StrFormat("few-steps: %d steps; the rule needs %d", points.size(), kFewSteps));
    }
    const Growth growth =
        declared() ? WatchCeiling(points, tail_ceiling_, square_ceiling_, kRunLength)
                   : WatchRanks(points, absl::StrCat(site.layer, "/", site.op), kRunLength);
    const StepChange jump = FindStepChange(points);
    v1::Verdict verdict;
    if (jump.found && site.statistics.with_lag == 0) {
      verdict = Jumped(site, jump);
    } else if (!growth.alarmed || !(declared() || growth.after >= kMaterial * growth.before)) {
      verdict = Pass(absl::StrFormat("R reached %.3g of a million in %d steps",
                                     std::exp(growth.log_largest), growth.steps));
      PutCeilings(points, *verdict.mutable_details());
    } else if (jump.found) {
      verdict = Pass(absl::StrFormat(
          "the rise is one jump at step %d: drift/missed-sync reports it", jump.step));
    } else if (jump.other_tokens) {
      verdict = Inconclusive(absl::StrFormat(
          "other-tokens: the drift rose at step %d, and tokens of equal log mu have less than half "
          "of that: other tokens are drawn since then, as from another task",
          jump.step));
    } else if (!site.ended && StepsAfter(points, growth) < StepChange::kFewestAside) {
      verdict = Inconclusive("waiting: the drift rises, but a single jump can still explain it");
    } else {
      verdict = Found(site, growth, points);
    }
    google::protobuf::Struct& details = *verdict.mutable_details();
    Put(details, "steps", static_cast<double>(points.size()));
    Put(details, "log_largest", growth.log_largest);
    if (lag >= 0) Put(details, "lag", static_cast<double>(lag));
    if (!declared()) verdict.add_assumptions("steps are exchangeable if nothing grows");
    return verdict;
  }

  // A jump needs 8 steps after it to be distinguished from growth, and growth may raise an alarm
  // with fewer.
  static size_t StepsAfter(const std::vector<DriftPoint>& points, const Growth& growth) {
    return static_cast<size_t>(std::count_if(
        points.begin(), points.end(), [&](const auto& p) { return p.step > growth.alarm_step; }));
  }

  static void PutCeilings(const std::vector<DriftPoint>& points,
                          google::protobuf::Struct& details) {
    const Ceilings ceilings = Calibrate(points);
    if (std::isnan(ceilings.square)) return;
    Put(details, "tail_ceiling", ceilings.tail);
    Put(details, "square_ceiling", ceilings.square);
  }

  // Without versions drift/missed-sync cannot judge, so this rule reports the jump.
  static v1::Verdict Jumped(const DriftSite& site, const StepChange& jump) {
    const DriftCause cause = site.Cause();
    return DriftFinding(
        site, jump.step, cause,
        FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
            .Title("drift rose at one step and stayed")
            .Explain(absl::StrFormat(
                "At step %d the mean square of d rose %.3g-fold (%.0f standard errors) and stayed "
                "high. No weight versions are recorded.%s",
                jump.step, std::exp(jump.jump), jump.jump / jump.standard_error,
                PossibleCauses(cause)))
            .Measured("jump of the log mean square of d", jump.jump, "nats")
            .Threshold(std::numbers::ln2, "ln 2, 6 standard errors, half of the line's squares"),
        {"measured", 3e-4}, jump.steps);
  }

  v1::Verdict Found(const DriftSite& site, const Growth& growth,
                    const std::vector<DriftPoint>& points) const {
    const bool rose = growth.since_step > points.front().step;
    const DriftCause cause = rose ? CauseOfGrowth(site.Cause()) : site.Cause();
    const std::string rise =
        rose ? absl::StrFormat("rose from %.2g to %.2g", growth.before, growth.after)
             : absl::StrFormat("is %.2g", growth.after);
    return DriftFinding(
        site, growth.since_step, cause,
        FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
            .Title(kInfo.title)
            .Explain(absl::StrFormat(
                "Since step %d the mean of min(d^2, 1/4) %s (alarm at step %d). %s.",
                growth.since_step, rise, growth.alarm_step, cause.words))
            .Measured("evidence of growth, ln R", growth.log_largest, "nats")
            .Threshold(std::log(kRunLength), "one false alarm in a million steps on average"),
        {"run-length", kRunLength}, growth.steps);
  }

  double tail_ceiling_;
  double square_ceiling_;
};

}  // namespace

CatalogueEntry drift_growth() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<DriftGrowth>(options);
          }};
}

}  // namespace plumbline::rules
