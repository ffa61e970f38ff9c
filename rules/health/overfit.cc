#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/loss_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/overfit

An evaluation loss rises above its best while the training loss falls.

**Why.** A model that memorises its training data gets worse at everything else: an evaluation loss of 0.4 that ends at 1.3 is a
worse model than the one of the best evaluation, and every later step was useless. This is most frequent in fine-tuning over a few epochs.

**Bad.** `eval_loss` 1.25 in step 200, 3.75 in step 1,600, while the training loss falls from 1.1 to 0.2.

**Good.** An evaluation that is constant, or varies by a few percent; one that rises with the training loss (a restarted rate).

**How to fix it.**
- Take the checkpoint of the best step: Hugging Face `load_best_model_at_end=True`, `metric_for_best_model="eval_loss"`,
  `EarlyStoppingCallback`; Lightning `ModelCheckpoint(monitor="val_loss")`.
- Fewer epochs, a lower rate, weight decay or dropout, a smaller adapter, more data.

**What it checks.** Each loss of an evaluation (`eval_loss`, `val/loss`, `test loss`), from its fifth value on.
- *Rises.* The median of the newest eighth of the evaluations (2 at least) lies 10 % above the best mean of a twelfth of them (1 at
  least) and 6 standard errors, each of the newest lies 2 sigma above that best, and of the pairs of evaluations since the best three
  quarters rise; or the evaluation jumped to 1.5 times its best or more and stays (the newest 5 or more, after 3 low ones).
  Sigma comes from second differences, which no slope changes; under 12 evaluations from their root mean square, made larger: of
  all, or of those since the best one (5 or more), because the turn at the best one is no noise.
- *While training falls.* The mean training loss of the newest evaluations' intervals is below that of the best one's. If no training loss is
  recorded, the finding states that as an assumption.

While the run continues it reports at the second consecutive evaluation that shows it; at the run's end, at once. It
gives the step of the best evaluation.
At most 256 evaluations are kept; of more, neighbours become one, their mean.

**Strength.** `statistical`, `measured`. Simulated evaluations (docs/measurements/short_runs.md), runs of 200 seeds with the finding at their end:

| evaluations | 5 | 10 | 20 | 60 | 200 |
|---|---|---|---|---|---|
| 0.4 to 1.3, noise 0.5 % | 200 | 200 | 200 | 200 | 200 |
| 0.4 to 1.3, noise 3 % | 199 | 200 | 200 | 200 | 200 |
| 0.4 to 1.3, noise 10 % | 88 | 113 | 162 | 200 | 200 |
| down by a third, then up by 60 %, noise 3 % (8 evaluations: 121) | 0 | 154 | 193 | 200 | 200 |
| false: flat, falling, or falling and then flat, noise 0.5 to 10 %, normal or Student's t, 1,600 runs | 0 | 0 | 0 | 0 | 0 |

**Inconclusive when** there are under 5 finite evaluations, or their loss is 0 or less.

**What it cannot see.** A rise of under 10 %. **Known alarms:** evaluations whose noise is 10 % and correlated over
many of them (few, random samples that are
kept); an evaluation on data that drifts away from the training data by design.

**Cost.** 256 values a series; a look at each of the first 64 evaluations, then at each thirtieth part more.

**Sources.** Prechelt, "Early Stopping - But When?", 1998; Amazon SageMaker Debugger `Overfit` (validation to training loss above 1.1: one number for
all losses; this rule needs the rise itself).
)page";

constexpr RuleInfo kInfo = {"health/overfit",
                            "the evaluation rises while training falls",
                            v1::LEVEL_WARNING,
                            "0.2.0",
                            kPage,
                            {}};

constexpr double kOverfitAlarms =
    4e-3;  // false alarms per healthy series of 5 evaluations, at 95 %; fewer for longer series
constexpr char kOnce[] = "once";

class OverfitRule : public LossRule {
 public:
  explicit OverfitRule(const Options& options) : LossRule(options) {}

 protected:
  std::optional<FindingBuilder> Look(const LossSeries& series, bool at_the_end,
                                     Stated& stated) const override {
    if (!series.evaluation() || !(at_the_end || series.overfit.IsDue())) return std::nullopt;
    if (stated.attempt != series.attempt) stated.open = false;
    const OverfitFigures figures = series.overfit.Look();
    if (!figures.overfits()) {
      stated.of.erase(kOnce);
      if (!at_the_end || !stated.open) return std::nullopt;
      return CameBack(series, figures, stated);
    }
    const bool again = !stated.of.insert(kOnce).second;
    if (!at_the_end && (!again || stated.open)) return std::nullopt;
    if (!stated.open) stated.onset = figures.best_step;
    stated.open = true;
    stated.attempt = series.attempt;
    return Found(series, figures, stated);
  }

  std::optional<v1::Verdict> Rest(const LossSeries& series) const override {
    if (!series.evaluation()) return std::nullopt;
    const OverfitFigures figures = series.overfit.Look();
    if (!figures.known)
      return Inconclusive(absl::StrCat("few-points: ", figures.evaluations,
                                       " finite evaluations; the rule needs 5"));
    if (!(figures.best > 0))
      return Inconclusive(
          "not-positive: the evaluation is 0 or less, so a relative rise is not defined");
    if (figures.rises) return Pass("it rises, and so does the training loss");
    return Pass("it does not rise above its best beyond its noise");
  }

 private:
  static FindingBuilder Found(const LossSeries& series, const OverfitFigures& figures,
                              const Stated& stated) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    std::string text = absl::StrFormat(
        "%s was best in step %d, at %.4g, and is %.4g in step %d, %.3g %% above it", series.op,
        figures.best_step, figures.best, figures.stands, figures.step, 100 * figures.share());
    if (figures.training) {
      absl::StrAppendFormat(&text, ", while the training loss fell from %.4g to %.4g",
                            figures.training_best, figures.training_now);
    } else {
      found.Assume("the training loss falls (none is recorded)");
    }
    found.Title(kInfo.title)
        .Explain(text + ".")
        .Cause("overfit", 0.8)
        .Fix(absl::StrFormat("Use the checkpoint of step %d. Stop there (EarlyStoppingCallback, "
                             "load_best_model_at_end=True), or use fewer epochs, a lower learning "
                             "rate, or more data.",
                             figures.best_step));
    Describe(series, figures, stated, "overfit", &found);
    return found;
  }

  static FindingBuilder CameBack(const LossSeries& series, const OverfitFigures& figures,
                                 const Stated& stated) {
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    found.Title("the evaluation rose and came back")
        .Explain(absl::StrFormat(
            "%s rose from step %d on, and is %.4g in step %d; its best value, in step %d, is %.4g.",
            series.op, stated.onset, figures.stands, figures.step, figures.best_step, figures.best))
        .Cause("recovered", 0.9)
        .Fix("Do nothing while the evaluation continues to fall.");
    Describe(series, figures, stated, "recovered", &found);
    return found;
  }

  static void Describe(const LossSeries& series, const OverfitFigures& figures,
                       const Stated& stated, const char* kind, FindingBuilder* found) {
    found->Measured("rise above the best evaluation", figures.share(), "share")
        .Threshold(0.1, "and at least 6 standard errors of the evaluation's noise")
        .Samples(figures.evaluations)
        .FalseAlarm("measured", kOverfitAlarms)
        .Witness("best_step", static_cast<double>(figures.best_step))
        .Witness("best", figures.best)
        .Witness("newest", figures.stands)
        .Witness("sigma", figures.sigma);
    PlaceOnset(series, stated.onset, figures.step, kind, found);
    Put(*found->verdict().mutable_details(), "best_step", static_cast<double>(figures.best_step));
  }
};

}  // namespace

CatalogueEntry overfit() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<OverfitRule>(options);
          }};
}

}  // namespace plumbline::rules
