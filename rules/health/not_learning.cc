#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/role/role.h"
#include "analysis/series/series.h"
#include "rules/bases/loss_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/not-learning

The loss stays where it began, though the learning rate is above 0.

**Why.** A run that learns nothing costs what a good one costs, and looks like a plateau. The causes are at its beginning: a clip far below the
gradient's norm, dead units, gradients that vanish, labels that have nothing to do with the inputs, frozen parameters, bf16 weights that round
away updates below 1/256 of their value.

**Bad.** `loss` 2.303 = ln 10 over 200 points at a rate of 1e-3.

**Good.** A late plateau; the loss of a small batch, whose noise hides a fall; a VAE, which falls at once; continued
pretraining of a model that has converged.

**How to fix it.**
- Look whether tensors change (`health/unchanged-tensor`, `precision/lost-update`), and at the gradient norm against the clip (`max_grad_norm`).
- bf16 weights: keep fp32 master weights (autocast instead of `model.to(bf16)`), or a rate 10 times as high.
- At ln k: dead units (a lower rate, another initialisation), labels that were shuffled, a head that is not trained.

**What it checks.** Each training loss from 60 points on, at the end of the run and at 96 points, 192, and so on; from 10 points on one whose values
are all the same, to 4 digits or more (`loss: 0.6931` in each of 50 epochs), or lie within 0.6 % of each other and at ln k to 0.07 %. It is flat if
- its first point, its first 3 and its first 8 lie within their noise (3 standard errors) of the median of all;
- its last third lies no more than 2 standard errors (and 1.5 %) below its first third, and noise hides no fall of 3 %: the upper end of the 99 %
  interval of the fall is below that;
- no eighth of the run lies 4 standard errors below the median of all.

Noise is that of neighbours, or that about the line through the newest half, whichever is more, and counts for more where it is correlated. The
rate must be above 0 in half of the points or more; a rate of 0 is `health/learning-rate`'s. If the level is ln k for a whole k of 2 to 20 (to
0.3 % and two standard errors), the model guesses uniformly over k classes: the finding states that. It weighs more than the notes below if the
mean is known to 0.1 %. If no fall is
seen, but noise could hide one of 3 to 10 %: a note.

- *Repeats.* At the end, before all other conditions: the newest 10 values or more equal those one period before, digit for digit, of 3 different values or more. No update reached the
  model. If other values precede them, a whole period must come again, and its moves must be a quarter of those before or more, and 10 units of the last digit. A constant learning
  rate of 0 is `health/learning-rate`'s.
- *Frozen.* The newest 10 values or more, of 4 digits, are equal, and 3 times as many as ever before in a row. The moves before them do not become ever smaller, as those of a loss that
  converges do: the larger of the last two is half of the median of the 8 before or more, and 10 units of the last digit (of the grid, if all moves are its multiples, as in bf16);
  or both are 0.15 of it or more, and 30 units. A part of the loss, and boosted trees, which stand if no split has a gain, are a note.
- *Evaluation.* An evaluation loss that has one value, of 4 significant digits or more (`0.0012` has 2), in 10 evaluations or more, while the training loss falls; or one that rose at least once, is
  frozen since, while the training loss falls from there to its end: it is not this model that is evaluated. One value in each row of the training may be a single evaluation that is
  printed again: a note, unless the rows are counted one by one (epochs).

A model that has converged, and is trained further, shows the same curve. The finding is only a note if the log shows that the model may
have learnt before: its first step is not the run's (more than twice as far from 0 as points are from each other), it
logs an epoch that has not reached 1, or
`run.watch` saw a cross-entropy over k classes, and the loss is below 0.9 ln k (a uniform guess has ln k); unless the level
is ln k. Within an epoch or more a model that learns fits what it has seen before. It is a note, too, if an accuracy or the margins of pairs
rise (`rewards/accuracies`): preference training begins at ln 2, which is no guess there, and with a small beta its loss moves little.

**Strength.** `statistical`, `measured`. Simulated runs of 200 seeds each (docs/measurements/short_runs.md); under 60
points only values that never change and, from 10 points on, a loss at ln k are judged (ln k, 10 to 59 points: 7,852 of
8,000 found, 0 warnings of 56,000 healthy curves, docs/measurements/losses.md):

| runs | 10, 20 points | 60 points | 200 points |
|---|---|---|---|
| flat at ln k, noise 0.1 to 3 % | 0 | 179 | 200 |
| flat elsewhere, noise 0.3 to 3 % | 0 | 172 | 198 |
| flat, noise 2 to 8 % | 0 | 52 (and 109 notes) | 128 (and 50 notes) |
| false: 14 healthy families, 2,800 runs | 0 | 1 | 2 |
| continued pretraining that falls by 1 to 4 % under noise of 0.5 to 5 %, no epoch logged | 0 | 33 | 39 |

**Inconclusive when** the series has under 60 points (that are not all the same) or values of 0 and less, or if noise
could hide a fall of 3 % or more.

**What it cannot see.** A run that learns little (a fall of 3 %). **Known alarm:** the last line of the table, if the log holds no epoch: log it, or
suppress the finding.

**Cost.** None beyond the block medians that `health/loss-stall` keeps.

**Sources.** Amazon SageMaker Debugger `LossNotDecreasing`: 10 steps without a fall of 0.1 %, which accuses any noisy loss. Karpathy, "A Recipe for
Training Neural Networks", 2019: the loss at initialisation is ln of the number of classes.
)page";

constexpr RuleInfo kInfo = {
    "health/not-learning", "the loss does not fall", v1::LEVEL_WARNING, "0.2.0", kPage, {}};

constexpr double kLearningAlarms = 3e-3;  // per healthy run that learns: bound at 95 %
constexpr double kMostHidden = 0.1;       // a fall that noise may hide, but still worth a note

class NotLearning : public LossRule {
 public:
  explicit NotLearning(const Options& options) : LossRule(options) {}

 protected:
  std::optional<FindingBuilder> Look(const LossSeries& series, bool at_the_end,
                                     Stated& stated) const override {
    if (series.detector.linear()) return std::nullopt;
    if (series.evaluation()) return at_the_end ? EvaluationStands(series) : std::nullopt;
    if (!at_the_end && !series.detector.EndIsDue()) return std::nullopt;
    if (stated.attempt != series.attempt) stated.open = false;
    // What is proved comes before what the curve suggests.
    if (at_the_end && Rated(series)) {
      if (series.detector.LookForRepeats().repeats) return Repeats(series);
      if (series.detector.LookForFrozen().frozen) return Frozen(series);
    }
    LearningFigures figures = series.detector.LookForLearning();
    bool flat = LooksUnlearnt(series);
    if (flat && OfPairs(series)) {
      flat = figures.constant || figures.points >= kFewestForLearning;
      figures.classes = 0;  // ln 2 is where preference training begins, and no guess
    }
    if (!flat && stated.open && figures.left) {
      stated.open = false;
      return Learns(series, figures);
    }
    const bool hidden = at_the_end && figures.hidden && figures.most < kMostHidden && Rated(series);
    if ((!flat && !hidden) || (stated.open && !at_the_end)) return std::nullopt;
    stated.open = flat;
    stated.attempt = series.attempt;
    FindingBuilder found = Found(series, figures, flat);
    SoftenByQuality(series, &found);
    if (MayRise(series)) Soften(series, &found);
    return found;
  }

  std::optional<v1::Verdict> Rest(const LossSeries& series) const override {
    if (series.role != SeriesRole::kLoss) return std::nullopt;
    if (series.detector.linear())
      return Inconclusive("not-positive: a value is 0 or less, and has no logarithm");
    if (auto few = FewPoints(series, kFewestForLearning)) return few;
    const LearningFigures figures = series.detector.LookForLearning();
    if (figures.noisy || figures.hidden)
      return Inconclusive(
          absl::StrFormat("noisy: noise of %.3g %% per point could hide a fall of %.3g %%",
                          100 * figures.sigma, 100 * figures.most));
    return Pass(figures.flat ? "the learning rate is 0: health/learning-rate judges that"
                             : "it left its first level");
  }

 private:
  static bool Rated(const LossSeries& series) {
    return !series.rate_known || 2 * series.rated >= series.detector.points();
  }

  static FindingBuilder Found(const LossSeries& series, const LearningFigures& figures, bool flat) {
    const std::optional<std::string> converged = MayHaveConverged(series, std::exp(figures.level));
    // The mean must be known to a thousandth; otherwise ln k may be a coincidence.
    constexpr double kKnown = 0.001;
    const bool guess = figures.classes > 0 &&
                       figures.sigma <= kKnown * std::sqrt(static_cast<double>(figures.points));
    const bool warns = flat && (guess || !converged);
    FindingBuilder found(warns ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    std::string text =
        figures.constant
            ? absl::StrFormat("%s is %.6g in each of %d points, steps %d to %d: no digit changes",
                              series.op, std::exp(figures.level), figures.points, series.step_first,
                              series.step_last)
            : absl::StrFormat(
                  "%s stays at %.4g over all of %d points, steps %d to %d: its last third is %.2g "
                  "%% below its first, and at most %.2g %% (at 99 %%; the noise of a point is %.2g "
                  "%%)",
                  series.op, std::exp(figures.level), figures.points, series.step_first,
                  series.step_last, 100 * std::max(0.0, figures.fall), 100 * figures.most,
                  100 * figures.sigma);
    if (figures.classes > 0) {
      absl::StrAppendFormat(&text, ". This equals ln %d = %.4g, a uniform guess over %d classes",
                            figures.classes, std::log(figures.classes), figures.classes);
    }
    found.Title(flat ? "the loss does not fall" : "no fall of the loss is visible in its noise")
        .Explain(text + ".")
        .Cause(figures.classes > 0 ? "uniform-guess" : "flat-from-the-beginning",
               figures.classes > 0 ? 0.9 : 0.7)
        .Fix(
            "Compare the gradient norm with the clip (max_grad_norm), and check that weights "
            "change: bf16 weights need fp32 masters or a higher learning rate. Check labels and "
            "frozen parameters.");
    if (converged && !guess) found.Assume(*converged);
    Describe(series, figures, "stall", &found);
    return found;
  }

  // Each epoch logs the values of the previous one: no step changed the model.
  static FindingBuilder Repeats(const LossSeries& series) {
    const RepeatFigures repeats = series.detector.LookForRepeats();
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_BOUNDED);
    found.Title("the loss repeats itself digit for digit")
        .Explain(absl::StrFormat(
            "Each of the newest %d values of %s equals the value %d points before it, from step %d "
            "on: the same batches come again, and the model has not changed between them.",
            repeats.repeated, series.op, repeats.period, repeats.step))
        .Cause("no-update", 0.9)
        .Measured("values that are repeated", static_cast<double>(repeats.repeated), "points")
        .Threshold(10, "in a row, up to the end, of 3 values or more")
        .Samples(repeats.repeated + repeats.period)
        .Witness("period", static_cast<double>(repeats.period))
        .Assume("values differ in their digits if the model changes")
        .Fix(
            "Check that the optimizer holds the parameters of this model, that optimizer.step() is "
            "called, and that gradients reach the parameters (requires_grad, no_grad, detach).");
    PlaceOnset(series, repeats.step, series.step_last, "no-update", &found);
    return found;
  }

  // From some point on, the same number is logged.
  FindingBuilder Frozen(const LossSeries& series) const {
    const FrozenFigures frozen = series.detector.LookForFrozen();
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_BOUNDED);
    found.Title("the loss stands at one value digit for digit")
        .Explain(absl::StrFormat(
            "%s varies up to step %d, and is %.6g in each of the newest %d points: no step has "
            "changed the model since, or the logged number is no longer computed.",
            series.op, frozen.step, frozen.value, frozen.points))
        .Cause("no-update", 0.8)
        .Fix(
            "Check whether steps are skipped (loss scale, gradients that are not finite), whether "
            "the weights still change, whether the loader gives the same batch again, and that the "
            "logged loss is that of the newest step.");
    DescribeFrozen(series, frozen, "no-update", &found);
    if (MayRise(series)) Soften(series, &found);
    if (IsOfBooster(series.op))
      found.Level(v1::LEVEL_NOTE).Assume("boosted trees stand if no further split has a gain");
    return found;
  }

  // The model changes, but its evaluation does not.
  std::optional<FindingBuilder> EvaluationStands(const LossSeries& series) const {
    FrozenFigures frozen = series.detector.LookForFrozen();
    const LearningFigures figures = series.detector.LookForLearning();
    const bool later = frozen.frozen && frozen.rose && TrainingFellSince(series, frozen.step);
    if (!later && !(figures.constant && TrainingFalls(series))) return std::nullopt;
    const bool trees = IsOfBooster(series.op);
    const bool copied = trees || (!later && MayBeCopied(series));
    FindingBuilder found(copied ? v1::LEVEL_NOTE : v1::LEVEL_WARNING,
                         copied ? v1::STRENGTH_HEURISTIC : v1::STRENGTH_BOUNDED);
    found.Title("the evaluation does not change while the training loss falls")
        .Explain(absl::StrFormat(
            "%s is %.6g in each of %s%d %s, steps %d to %d, and no digit changes; the training "
            "loss falls.",
            series.op, frozen.value, later ? "the newest " : "", frozen.points,
            copied ? "rows" : "evaluations", frozen.step, series.step_last))
        .Cause("evaluation-constant", 0.85)
        .Assume("an evaluation of a model that changes has other digits")
        .Fix(
            "Check which weights the evaluation uses: another copy of the model, weights that were "
            "loaded once, an average (EMA) that is not updated, outputs that are NaN and "
            "replaced.");
    if (copied)
      found.Assume(trees ? "boosted trees stand if no further split has a gain"
                         : "each row has its own evaluation, not a copy of an earlier one");
    DescribeFrozen(series, frozen, "evaluation-constant", &found);
    return found;
  }

  static void DescribeFrozen(const LossSeries& series, const FrozenFigures& frozen,
                             const char* kind, FindingBuilder* found) {
    found->Measured("points of one value", static_cast<double>(frozen.points), "points")
        .Threshold(static_cast<double>(kFewestConstant),
                   "in a row up to the end, of 4 digits, and 3 times as many as before")
        .Samples(series.detector.points())
        .Witness("level", frozen.value)
        .Witness("equal_before", static_cast<double>(frozen.before));
    PlaceOnset(series, frozen.step, series.step_last, kind, found);
  }

  static FindingBuilder Learns(const LossSeries& series, const LearningFigures& figures) {
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    found.Title("the loss falls after a flat start")
        .Explain(absl::StrFormat("%s was flat at first and has left that level in step %d.",
                                 series.op, series.step_last))
        .Cause("recovered", 0.9)
        .Fix("Do nothing. A longer warm-up or another initialisation may shorten such a start.");
    Describe(series, figures, "recovered", &found);
    return found;
  }

  static void Describe(const LossSeries& series, const LearningFigures& figures, const char* kind,
                       FindingBuilder* found) {
    found->Measured("upper end of the fall", 100 * figures.most, "%")
        .Threshold(3, "99 % interval of the medians of the first and the last third")
        .Samples(figures.points)
        .FalseAlarm("measured", kLearningAlarms)
        .Witness("level", std::exp(figures.level))
        .Witness("fall", figures.fall)
        .Witness("sigma", figures.sigma)
        .Witness("points", static_cast<double>(figures.points));
    if (!series.rate_known) found->Assume("the learning rate is above 0 (none is recorded)");
    PlaceOnset(series, series.step_first, series.step_last, kind, found);
  }
};

}  // namespace

CatalogueEntry not_learning() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<NotLearning>(options);
          }};
}

}  // namespace plumbline::rules
