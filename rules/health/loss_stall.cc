#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/loss_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/loss-stall

The loss does not fall any more, or has never fallen.

**Why.** A model of 50,000 tokens that learns nothing stays at ln 50,000 = 10.8 from its first step: a frozen parameter
group, a rate of 0, labels that have nothing to do with the inputs. It costs as much as a good run, and it may take a
day until a person compares. A run that has learned and stops improving late is different: most healthy ones do.

**Bad.** `loss` at 10.81 over the first 16 steps, and at 10.79 over steps 500 to 1,000.

**Good.** A late plateau, reported as a note; a slow power law, whose slope against ln n stays what it was.

**How to fix it.**
- From the beginning: is the rate above 0 (`health/learning-rate`), do tensors change (`health/unchanged-tensor`), are the
  labels those of these inputs?
- Late in the run: lower the rate, use a larger batch or more data, or end the run.

**What it checks.** Each series with the word `loss` in its name (not evaluations), of 500 points or more. The newest half
of the points is cut into at most 96 blocks; through the medians of ln loss against ln n goes a Theil-Sen line. Where the
99 % interval of its slope reaches 0, the loss stalls: a note. It is a warning only where the run stalls from its
beginning: the median of the newest half is more than 0.98 of that of the run's first 16 points, and that of no block of the run is
lower by more than noise (6 standard errors); a note if `health/not-learning` reports it, or if the model may have learnt before this run
(its page lists the signs: a later first step, an epoch below 1, a cross-entropy under 0.9 of a uniform guess's). A
loss whose newest half is a tenth above its lowest block has risen:
`health/loss-divergence` judges that. The sum of a game, or a part of a loss, as that page has them, is a note at
most. It looks at the end of the run, and at 4,096 points and each time they have doubled.

**Strength.** `statistical`, `measured`: no warning on the healthy curves of `health/loss-spike` (docs/measurements/losses.md); the
interval itself is one of 99 % for independent blocks. Under 500 points it judges nothing; `health/not-learning` does
from 60 on (docs/measurements/short_runs.md).

**Inconclusive when** the series has under 500 points, or values of 0 and less, which have no logarithm.

**What it cannot see.** A stall that is shorter than half of the run. A run that learns nothing for thousands of steps and
then does (grokking) is accused before it does.

**Cost.** Some 10 KB a series; a line over 96 points when it looks.

**Sources.** Amazon SageMaker Debugger `LossNotDecreasing`: 10 steps without a fall of 0.1 %, which accuses any noisy loss; hence
a slope with an interval. Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968.
)page";

constexpr RuleInfo kInfo = {
    "health/loss-stall",   "the loss stopped falling", v1::LEVEL_WARNING, "0.1.0", kPage, {},
    /*alpha_weight=*/0,
    /*decides_early=*/true};

constexpr char kBeginning[] = "beginning";

class LossStall : public LossRule {
 public:
  explicit LossStall(const Options& options) : LossRule(options) {}

 protected:
  std::optional<FindingBuilder> Look(const LossSeries& series, bool at_the_end,
                                     Stated& stated) const override {
    if (series.evaluation() || stated.of.contains(kBeginning)) return std::nullopt;
    if (!at_the_end && !series.detector.StallIsDue()) return std::nullopt;
    const StallFigures stall = series.detector.LookForStall();
    if (!stall.stalled() || stall.rose()) return std::nullopt;
    const bool beginning = stall.from_the_beginning();
    if (!beginning && !at_the_end) return std::nullopt;
    if (beginning) stated.of.insert(kBeginning);
    FindingBuilder found = Found(series, stall, beginning);
    if (beginning && MayRise(series)) Soften(series, &found);
    const std::optional<std::string> converged = MayHaveConverged(series, std::exp(stall.begin));
    if (beginning && converged) found.Level(v1::LEVEL_NOTE).Assume(*converged);
    // Reports a fault only once.
    if (beginning && LooksUnlearnt(series))
      found.Level(v1::LEVEL_NOTE).Assume("health/not-learning reports it");
    return found;
  }

  std::optional<v1::Verdict> Rest(const LossSeries& series) const override {
    if (series.evaluation()) return std::nullopt;
    if (series.detector.linear())
      return Inconclusive("not-positive: a value is 0 or less, and has no logarithm");
    if (auto few = FewPoints(series, 500)) return few;
    const StallFigures stall = series.detector.LookForStall();
    if (stall.rose())
      return Pass(absl::StrFormat(
          "it fell to %.4g and is %.4g over its newest half: health/loss-divergence judges a rise",
          std::exp(stall.lowest), std::exp(stall.newest)));
    return Pass(
        absl::StrFormat("it falls over its newest half: ln loss by %.3g in ln n", stall.slope));
  }

 private:
  static FindingBuilder Found(const LossSeries& series, const StallFigures& stall, bool beginning) {
    FindingBuilder found(beginning ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    found
        .Title(beginning ? "the loss has not fallen since the beginning"
                         : "the loss stopped falling")
        .Explain(absl::StrFormat(
            "The median of %s is %.4g over its newest half, from step %d on, and was %.4g over its "
            "first "
            "16 points; the slope of ln loss against ln n is between %.2g and %.2g there.",
            series.op, std::exp(stall.newest), stall.half_step, std::exp(stall.begin), stall.low,
            stall.high))
        .Cause(beginning ? "never-fell" : "plateau", 0.8)
        .Measured("slope of ln loss against ln n, upper end", stall.high, "")
        .Threshold(0, "99 % interval of Theil and Sen")
        .Samples(stall.points)
        .FalseAlarm("measured", beginning ? kLossAlarms : 0.01)
        .Witness("first", std::exp(stall.begin))
        .Witness("newest", std::exp(stall.newest))
        .Witness("slope", stall.slope)
        .Witness("points", static_cast<double>(stall.points))
        .Fix(beginning ? "Check that the learning rate is above 0, that tensors change, and that "
                         "labels belong to their inputs."
                       : "Lower the learning rate, use more data, or end the run.");
    PlaceOnset(series, stall.half_step, series.step_last, "stall", &found);
    return found;
  }
};

}  // namespace

CatalogueEntry loss_stall() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LossStall>(options);
          }};
}

}  // namespace plumbline::rules
