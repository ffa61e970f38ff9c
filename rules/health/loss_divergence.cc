#include <algorithm>
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
# health/loss-divergence

The loss rises and does not come back.

**Why.** A training loss that stands a third above its level after 128 points does not mend itself: of the divergences in
published logs of OPT-175B (some 40 restarts) and BLOOM the team went back to an older checkpoint each time. A rise of 0.1
in 2.3 over some thousand steps is the same run on its way there, and nobody sees it between two glances at a curve.

**What it checks.** Each series with the word `loss` in its name (not evaluations; auxiliary, load-balancing and z losses
are apart). Points count, not steps.
- *Divergence.* An excursion (`health/loss-spike` has the definition) that is not back within 128 points, or by the end of
  the data from 16 on, and whose median excess grew to 1.5 times from its first to its last quarter as the loss itself
  rose, or which stands a third above the level or more by then: an error, with the excursion's onset.
- *Drift.* L, the median of the newest n = 8 to 64 points, is 10 % above the lowest L of an earlier block, and by 6 x 1.25
  sigma sqrt(1/n + 1/n') (sigma from the differences of neighbours), and the 99 % Theil-Sen interval of the slope since
  that block lies above 0: a warning. The onset is the point after the last one whose 3-point median was at most the
  best L + sigma. Where points two blocks apart differ by more than neighbours do, before the best block's end, noise is
  correlated: sigma and the number of points that count are corrected for it. The first 48 points, and the 128 after a
  restart of the rate, are not judged so.
- A restart of the rate (see `health/loss-spike`) begins the comparison anew. One divergence is told once, at the earlier
  onset; a divergence that comes back is said to be `recovered`.
- *Overfit.* An evaluation that rises like this, or step by step out of its noise, while the training loss falls: a note.

**Bad.** `lm loss` at 2.31 in step 4,209, at 3.2 in step 4,400, at 4.9 in step 4,600.

**Good.** The slow drift of correlated noise; a late plateau; a curriculum that becomes easier; an evaluation that rises by
overfitting.

**How to fix it.**
- Go back to a checkpoint before the onset; lower the rate or lengthen the warm-up, and clip the gradient norm.
- Attention logits that grow (QK norm), fp8 or fp16 ranges that overflow (`precision/*`), a wrong epsilon
  (`precision/epsilon-underflow`): the loss is where they show last.
- An evaluation that overfits: stop there, or use more data.

**Strength.** `statistical`, `measured`: with `health/loss-spike` at most 1 warning in a million points at 95 % confidence, on
28,000 simulated healthy curves (docs/measurements/losses.md). An error where it diverges, a warning where it drifts.

**Inconclusive when** the series has under 100 points. Findings are made before.

**What it cannot see.** A drift slower than the curve's own fall. A mixture of data that becomes harder is no fault and
looks the same.

**Cost.** A few comparisons a point; a Theil-Sen line over at most 96 medians where the level is 10 % up.

**Sources.** Amazon SageMaker Debugger `LossNotDecreasing` and `Overfit` (validation to training loss > 1.1: one number for
all losses; ours asks for the rise itself); msprobe's monitor of losses; Zhang et al., "OPT", 2022, and its log book; Sen, "Estimates of the
regression coefficient based on Kendall's tau", 1968.
)page";

constexpr RuleInfo kInfo = {
    "health/loss-divergence", "the loss rises", v1::LEVEL_ERROR, "0.1.0", kPage, {}};

constexpr char kBackFix[] =
    "Go back to a checkpoint before the onset; lower the rate or lengthen the warm-up, clip the "
    "gradient norm.";

class LossDivergence : public LossRule {
 public:
  explicit LossDivergence(const Options& options) : LossRule(options) {}

 protected:
  std::optional<FindingBuilder> Tell(const LossSeries& series, const SeriesEvent& event,
                                     Said& said) const override {
    if (series.evaluation()) return TellEvaluation(series, event, said);
    const Excursion& e = event.excursion;
    const bool diverged = e.kind == ExcursionKind::kDivergence;
    if (event.what == SeriesEvent::What::kRise) {
      if (said.open) return std::nullopt;
      said.open = true;
      said.onset = event.rise.onset_step;
      return Drift(series, event.rise);
    }
    if (event.what == SeriesEvent::What::kSettled && diverged) {
      if (!e.warns()) return Diverges(series, e, e.onset_step);
      said.onset = said.open ? std::min(said.onset, e.onset_step) : e.onset_step;
      said.open = true;
      return Diverges(series, e, said.onset);
    }
    if (event.what == SeriesEvent::What::kReturned) {
      const int64_t onset = said.open ? said.onset : e.onset_step;
      said.open = false;
      return Diverges(series, e, onset);
    }
    return std::nullopt;
  }

  std::optional<v1::Verdict> Rest(const LossSeries& series) const override {
    if (auto few = FewPoints(series, 100)) return few;
    return Pass(series.evaluation() ? "it did not rise while the training loss fell"
                                    : "it never rose for long");
  }

 private:
  static FindingBuilder Diverges(const LossSeries& series, const Excursion& e, int64_t onset) {
    const bool back = e.kind == ExcursionKind::kRecovered;
    FindingBuilder found(e.warns() ? v1::LEVEL_ERROR : v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    found.Title(back ? "the loss diverged and came back" : "the loss diverges")
        .Explain(absl::StrFormat(
            "%s left its level of %.4g in step %d and stands %.3g %% above it (median of the last "
            "quarter of %d points; %.3g %% in the first).%s",
            series.op, e.value(e.level), onset,
            100 * ShareOf(e.last_quarter, e.level, e.scale, e.linear), e.points,
            100 * ShareOf(e.first_quarter, e.level, e.scale, e.linear),
            back ? absl::StrCat(" It was last away in step ", e.last_step, ".") : ""))
        .Cause(NameOf(e.kind), back ? 0.95 : 0.9)
        .Measured("median excess of the last quarter",
                  100 * ShareOf(e.last_quarter, e.level, e.scale, e.linear), "%")
        .Threshold(100.0 / 3, "or 1.5 times the first quarter's")
        .FalseAlarm("measured", kLossAlarms)
        .Fix(kBackFix);
    DescribeExcursion(series, e, &found);
    PlaceOnset(series, onset, e.last_step, NameOf(e.kind), &found);
    return found;
  }

  static FindingBuilder Drift(const LossSeries& series, const Rise& rise) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.Title("the loss drifts up").Cause("divergence", 0.6).Fix(kBackFix);
    DescribeRise(series, rise, &found);
    PlaceOnset(series, rise.onset_step, rise.step, "divergence", &found);
    return found;
  }

  static void DescribeRise(const LossSeries& series, const Rise& rise, FindingBuilder* found) {
    found
        ->Explain(absl::StrFormat(
            "%s stands at %.4g in step %d (median of %d points), %.3g %% above its best, %.4g, and "
            "has risen since: the slope is above 0 at 99 %% confidence.",
            series.op, rise.value(rise.level), rise.step, rise.block, 100 * rise.share(),
            rise.value(rise.best)))
        .Measured("rise above the best block", 100 * rise.share(), "%")
        .Threshold(10, "and 6 standard errors of the two medians")
        .Samples(rise.since)
        .FalseAlarm("measured", kLossAlarms)
        .Witness("onset_step", static_cast<double>(rise.onset_step))
        .Witness("best", rise.value(rise.best))
        .Witness("level", rise.value(rise.level))
        .Witness("points_since_best", static_cast<double>(rise.since))
        .Witness("sigma", rise.sigma);
    if (!series.rate_known)
      found->Assume("no learning rate is recorded: the rate did not go up again");
  }

  static std::optional<FindingBuilder> TellEvaluation(const LossSeries& series,
                                                      const SeriesEvent& event, Said& said) {
    if (!series.training_falls() || said.open) return std::nullopt;
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    int64_t onset = 0, last = 0;
    if (event.what == SeriesEvent::What::kRise) {
      DescribeRise(series, event.rise, &found);
      onset = event.rise.onset_step;
      last = event.rise.step;
    } else if (event.what == SeriesEvent::What::kSettled && !event.excursion.jumped &&
               event.excursion.lasting && event.excursion.kind != ExcursionKind::kRecovered) {
      const Excursion& e = event.excursion;
      onset = e.onset_step;
      last = e.last_step;
      found
          .Explain(absl::StrFormat("%s rose step by step from %.4g in step %d to %.4g in step %d.",
                                   series.op, e.value(e.level), e.onset_step, e.peak_value,
                                   e.peak_step))
          .Measured("rise above its level", 100 * e.peak_share(), "%")
          .Threshold(0, "6 scales of its noise")
          .FalseAlarm("measured", kLossAlarms);
      DescribeExcursion(series, e, &found);
    } else {
      return std::nullopt;
    }
    said.open = true;
    found.Title("the evaluation rises while training falls")
        .Cause("overfit", 0.8)
        .Fix("Stop at the best evaluation, or train on more data.");
    if (std::isnan(series.training))
      found.Assume("the training loss falls: none is recorded beside it");
    PlaceOnset(series, onset, last, "overfit", &found);
    return found;
  }
};

}  // namespace

CatalogueEntry loss_divergence() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LossDivergence>(options);
          }};
}

}  // namespace plumbline::rules
