#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/loss_ends.h"
#include "rules/bases/loss_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/loss-divergence

The loss rises and does not come back.

**Why.** A training loss that is a third above its level after 128 points does not recover by itself: of the divergences in
published logs of OPT-175B (some 40 restarts) and BLOOM the team went back to an older checkpoint each time. A rise of 0.1 in
a loss of 2.3 over some thousand steps is an earlier stage of the same failure, and is easily missed in a curve.

**Bad.** `lm loss` at 2.31 in step 4,209, at 3.2 in step 4,400, at 4.9 in step 4,600.

`loss` 1.40 for 10 points and 8.0 from there on; 3.3, then 84, then 14.3 to the end.

**Good.** The slow drift of correlated noise; a late plateau; a curriculum that becomes easier; a hump while the rate warms up.

**How to fix it.**
- Go back to a checkpoint before the onset; lower the rate or lengthen the warm-up, and clip the gradient norm.
- Attention logits that grow (QK norm), fp8 or fp16 ranges that overflow (`precision/*`), a wrong epsilon
  (`precision/epsilon-underflow`): the loss shows these causes last.

**What it checks.** Each series with the word `loss` in its name (not evaluations; auxiliary, load-balancing and z losses
are apart). Points count, not steps.
- *Divergence.* An excursion (`health/loss-spike` has the definition) that is not back within 128 points, or by the end of
  the data from 16 on, and whose median excess grew to 1.5 times from its first to its last quarter as the loss itself
  rose (by a fifth of the first quarter's excess over the old level, and by 3 standard errors), or which stands a third above
  the level or more by then and does not fall back: an error, with the excursion's onset. It
  falls back where its median excess fell by a tenth from its first to its last quarter and the 99 % Theil-Sen interval of its second half
  lies below 0: weights that were pruned, or data that changed, and a model that learns again. `health/loss-spike` reports that.
- *Drift.* L, the median of the newest n = 8 to 64 points, is 10 % above the lowest L of an earlier block, and by 6 x 1.25
  sigma sqrt(1/n + 1/n') (sigma from the differences of neighbours), and the 99 % Theil-Sen interval of the slope since
  that block is above 0: a warning; if it is a third above, an error. The onset is the point after the last one whose 3-point median was at most the
  best L + sigma. Where points two blocks apart differ by more than neighbours do, before the best block's end, noise is
  correlated: sigma and the number of points that count are corrected for it. The first 48 points, and the 128 after a
  restart of the rate, are not judged so.
- A restart of the learning rate (see `health/loss-spike`) restarts the comparison. What begins as a schedule restarts diverges only where it
  is not back when the rate is: three points in a row a third above the level that was left. One divergence is reported once, at the
  earlier onset. A divergence or a drift that comes back is a warning from there on, with kind `recovered`.
- Once a value is 0 or less, percentages mean nothing: a tenth and a third are those of the level or of 60 scales of its
  noise, whichever is more, and the finding uses scales as the unit.
- *Ends above its beginning.* From 8 points on, at the end of the run and at 96 points, 192, and so on: the median of the newest eighth of the
  points (3 to 64) is a third above that of the first 3, 5, 8, 12 or 16 (or twice the higher one of the first two), by 6 standard errors, and nine
  tenths of these newest points lie above all of the first: an error. The points between do not matter: a run that breaks at its third point, or
  that explodes and falls back to a level above its untrained model, is ruined. So is, as a warning, one whose points all lie at 1.8 times the first one or
  more, if its end lies at 2.5 times, by 8 standard deviations of a point, and does not fall from the third point on. Noise is that of neighbours or that about the line
  through the newest half, whichever is more, and counts for more where it is correlated. If all of the end lies above the first points, at twice
  their level, and does not fall, the noise may be that of the parts before and after the loss left that level, times 1.5. If it is lower at a later check, a warning remains.
- *Explodes at the end of its data.* From 8 points on: the newest 3 or more lie above all before them, their median is twice the highest of these, and
  they do not fall back; or each of the last 3 steps rises by a fifth, to 3 times that value. By 6 standard deviations of a point: an error.
  Of values of both signs, twice is twice the span of all before, from 11 points on.
- *Rises to the end of its data.* From 11 to 256 points, if the rate was never restarted, once at the end. The level is the median of a sixth of the points
  (3 to 16). The last level is a third above the lowest one, by 5 standard errors of the noisier part, and by twice the largest rise between
  levels before. All of its points lie above those of the lowest level, it does not fall back, and it is at half the height for 5 points:
  from a half on an error, under it a warning. For values of both signs a third is the span of all before, a half is twice that.
- *Runs to minus infinity.* The newest 3 points lie at -1,000 times the largest of the first 5 (1 at least), and fall: an error. So too at -1,000 times the
  first one, if the fall does not slow: each quarter falls, the second half by 0.8 of the first half's fall or more.
- *After the first row.* At the end: all points after the first one are nearer to a level at least 2.5 times as high (10 standard deviations of a
  point), which does not fall: a warning, because the first row may show something else. From 10 points on.
- *What explains it.* An error is a warning that names the cause if a series `stage`, `task`, `round`, `level` or `seq_len` changes within two rows of the
  onset; if a weight (`kl_weight`, `beta`, `mixup`) has moved by a fifth of its span since; or if an evaluation loss or an accuracy improves from the onset
  to the end (by 3 standard errors). It is a note if a part of the loss falls to its end, and a weight moves, or an auxiliary term (`vq_loss`) grew by half of the rise;
  and if another loss leaves exactly 0, or begins, within two rows of the onset, and its first 5 values reach half of the rise (a term that is switched on).
  It is a warning, too, if one part accounts for 0.7 of the jump and does not rise further, while another part falls: its weight, which is not logged, may have changed. It is a note if `fold`,
  `member` or `seed` changes there, and the loss is at most 1.25 times its first value: another model begins.
  A loss that ends more than ten times above its highest level before is explained by a term that is switched on alone.
- An evaluation that rises while the training loss falls is `health/overfit`'s. One that jumped, and ends at twice its beginning or its
  lowest level or more, is a warning here.
- *Two levels.* A loss that rose from its level to its peak (each to a quarter) three times before, and came back each time, and whose newest
  stay there is at most twice the longest one before, draws its data from several tasks: no finding of its end, and a note for an excursion.

**Strength.** `statistical`, `measured`: with `health/loss-spike` at most 1.2 warnings in a million points at 95 % confidence, on
28,000 simulated healthy curves (docs/measurements/losses.md). An error where it diverges, a warning where it drifts.

Runs that end above their beginning: no finding on 15,000 short healthy curves (docs/measurements/short_runs.md, also
the power at 10, 20, 60 and 200 points).

Runs that rise from their lowest level up to their end: no finding on 48,000 healthy curves of 11 to 256 points (docs/measurements/losses.md). Percent found:

| rise in the newest half | 12 points | 20 | 60 | 200 |
|---|---|---|---|---|
| a step to twice the level, noise of 2, 5, 10 % | 69, 42, 14 | 98, 84, 28 | 100, 100, 88 | 100 |
| a ramp to twice the level, noise of 5 % | 1 | 76 | 100 | 100 |
| a step to 3 times, noise of 10 % | 48 | 74 | 98 | 100 |

**Inconclusive when** the series has under 100 points. Findings are made before.

**What it cannot see.** A drift slower than the curve's own fall. An explosion of an auxiliary loss, of which `health/loss-non-finite` sees
the end.

**Known alarms.** What rises by design looks the same: a mixture of data that becomes harder, adversarial perturbations that grow, an
auxiliary loss whose weight ramps in, a teacher that moves (BYOL, I-JEPA), if no weight and no accuracy is logged. Log the part that is to fall as the loss and the whole under another name (`run.log`), or suppress the
finding until the ramp is over.
- *Reinforcement learning, GANs.* Losses of policies, critics, generators, discriminators and the like (docs/scalars.md has the words) are auxiliary:
  they rise as rewards come or the other side learns. A plain `loss` in a run that has two of these sides, or series of what an
  episode or an answer brought (`ep_rew_mean`, `episodic_return`, `reward`), is their sum: its rise is a note. `loss_a` and `loss_c` without `loss_b` are an actor's and a critic's. Where
  nothing of the kind is logged (a `loss` alone, of a DQN or a GAN)
  it is treated as any loss: declare `"loss" = "auxiliary-loss"` in a map. With `"loss" = "loss"` in a map it is judged in full.
- *Parts.* `l1_loss`, `l2_loss`, `nll_loss` and `loss_box_reg` are losses. If another training loss is logged, they
  are parts of it, and their rise is a note: weights
  grow, a detector finds more boxes to place as it learns, and preferred answers become less likely relative to others (a warning, if it ends at a hundred times its first values). So is the rise of
  `depth_loss` next to `loss`, `total_loss` or `lm_loss`, and where none of these is logged but another loss falls to the end.
- *Noise.* If an excursion begins within the first 128 points, after points that were quiet by chance (their scale is under two thirds of the
  noise of all neighbours so far), and its peak is within 8 standard deviations of that noise, it is a note.

**Cost.** A few comparisons a point; a Theil-Sen line over at most 96 medians where the level is 10 % up.

**Sources.** Amazon SageMaker Debugger `LossNotDecreasing`; msprobe's monitor of losses; Zhang et al., "OPT", 2022,
and its log book; Sen, "Estimates of the
regression coefficient based on Kendall's tau", 1968.
)page";

constexpr RuleInfo kInfo = {
    "health/loss-divergence", "the loss rises", v1::LEVEL_ERROR, "0.1.0", kPage, {},
    /*alpha_weight=*/0,
    /*decides_early=*/true};

constexpr char kAbove[] = "above";  // key in LossRule::Stated::of

class LossDivergence : public LossRule {
 public:
  explicit LossDivergence(const Options& options) : LossRule(options) {}

 protected:
  std::optional<FindingBuilder> Emit(const LossSeries& series, const SeriesEvent& event,
                                     Stated& stated) const override {
    if (series.evaluation()) return std::nullopt;               // health/overfit reports these
    if (stated.attempt != series.attempt) stated.open = false;  // a resume closes it
    auto found = event.of_rise() ? ReportRise(series, event, stated)
                                 : ReportExcursion(series, event, stated);
    if (found && MayRise(series)) Soften(series, &*found);
    if (found) SoftenExplained(series, &*found);
    if (found && !event.of_rise()) SoftenNoise(series, event.excursion, &*found);
    return found;
  }

  std::optional<FindingBuilder> Look(const LossSeries& series, bool at_the_end,
                                     Stated& stated) const override {
    if (series.evaluation()) return at_the_end ? EvaluationRose(series) : std::nullopt;
    if (!at_the_end && !series.detector.EndIsDue()) return std::nullopt;
    if (stated.attempt != series.attempt) stated.open = false;
    const EndFigures end = series.detector.LookAtEnd();
    if (end.above) {
      if (series.detector.GoesUpAndDown(end.begin, end.end, end.onset_step)) return std::nullopt;
      return EndsAbove(series, end, stated);
    }
    if (at_the_end && !stated.open) {
      if (auto found = RoseAtEnd(series)) return found;
    }
    if (!stated.of.contains(kAbove) || !end.known) return std::nullopt;
    return CameBack(series, end, stated);
  }

  std::optional<v1::Verdict> Rest(const LossSeries& series) const override {
    if (series.evaluation()) return std::nullopt;
    if (auto few = FewPoints(series, 100)) return few;
    return Pass("it never rose for long, and does not end higher than it started");
  }

 private:
  static std::optional<FindingBuilder> ReportExcursion(const LossSeries& series,
                                                       const SeriesEvent& event, Stated& stated) {
    const Excursion& e = event.excursion;
    if (event.what == SeriesEvent::What::kReturned) {
      // Replaces the report of the same onset, but not of a drift that continues.
      const bool drifts = stated.open && stated.drifts;
      const int64_t onset = stated.open && !drifts ? stated.onset : e.onset_step;
      stated.open = drifts;
      return Diverges(series, e, onset);
    }
    if (event.what != SeriesEvent::What::kSettled || e.kind != ExcursionKind::kDivergence)
      return std::nullopt;
    if (!e.warns()) return Diverges(series, e, e.onset_step);
    const int64_t onset = stated.open ? std::min(stated.onset, e.onset_step) : e.onset_step;
    stated.drifts = stated.open && stated.drifts;
    stated.onset = onset;
    stated.attempt = series.attempt;
    stated.open = !e.ended;
    return Diverges(series, e, onset);
  }

  // A tenth above the best level is a warning, a third is an error.
  static std::optional<FindingBuilder> ReportRise(const LossSeries& series,
                                                  const SeriesEvent& event, Stated& stated) {
    const Rise& rise = event.rise;
    if (event.what == SeriesEvent::What::kFell) {
      if (!stated.open || !stated.drifts) return std::nullopt;
      stated.open = false;
      return Fell(series, rise, stated);
    }
    if (stated.open && (!stated.drifts || !rise.third || stated.raised)) return std::nullopt;
    if (!stated.open) stated.onset = rise.onset_step;
    stated.open = stated.drifts = true;
    stated.raised = rise.third;
    stated.attempt = series.attempt;
    return Drift(series, rise, stated.onset);
  }

  static FindingBuilder Diverges(const LossSeries& series, const Excursion& e, int64_t onset) {
    FindingBuilder found = DivergesSo(series, e, onset);
    if (e.overstayed && e.kind != ExcursionKind::kRecovered) {
      found.Explain(
          absl::StrFormat("%s left its level of %.4g in step %d, as %s; in step %d the learning "
                          "rate is back, but the loss is %s above that level (median of 3 points).",
                          series.op, e.value(e.level), onset, RestartWords(e), e.last_step,
                          HowFar(e.last_quarter, e.level, e.scale, e.linear)));
    }
    return found;
  }

  static FindingBuilder DivergesSo(const LossSeries& series, const Excursion& e, int64_t onset) {
    const bool back = e.kind == ExcursionKind::kRecovered;
    const v1::Level level = back ? v1::LEVEL_WARNING : v1::LEVEL_ERROR;
    FindingBuilder found(e.warns() ? level : v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    const Height height = HeightOf(e.last_quarter, e.level, e.scale, e.linear);
    found.Title(back ? "the loss diverged and came back" : "the loss diverges")
        .Explain(absl::StrFormat(
            "%s left its level of %.4g in step %d and %s %s above the level that its course "
            "before predicts (median of the last quarter of %d points; %s in the first).%s",
            series.op, e.value(e.level), onset, back ? "stood" : "stands",
            HowFar(e.last_quarter, e.level, e.scale, e.linear), e.points,
            HowFar(e.first_quarter, e.level, e.scale, e.linear),
            back ? absl::StrCat(" It was last away in step ", e.last_step, ".") : ""))
        .Cause(NameOf(e.kind), back ? 0.95 : 0.9)
        .Measured("median excess of the last quarter", height.value, height.unit)
        .Threshold(ThirdOf(e.level, e.scale, e.linear),
                   "or 1.5 times the excess of the first quarter")
        .FalseAlarm("measured", kLossAlarms)
        .Fix(kBackFix);
    if (!back) {
      const std::string resumed = BlameResume(series, onset, &found);
      found.Explain(found.finding().explanation() + resumed);
    }
    DescribeExcursion(series, e, &found);
    PlaceOnset(series, onset, e.last_step, NameOf(e.kind), &found);
    return found;
  }

  static FindingBuilder Drift(const LossSeries& series, const Rise& rise, int64_t onset) {
    FindingBuilder found(rise.third ? v1::LEVEL_ERROR : v1::LEVEL_WARNING,
                         v1::STRENGTH_STATISTICAL);
    found.Title(rise.third ? "the loss has drifted up by a third" : "the loss drifts up")
        .Cause("divergence", rise.third ? 0.8 : 0.6)
        .Fix(kBackFix);
    DescribeRise(series, rise, &found);
    PlaceOnset(series, onset, rise.step, "divergence", &found);
    return found;
  }

  static FindingBuilder Fell(const LossSeries& series, const Rise& rise, const Stated& stated) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.Title("the loss drifted up and came back")
        .Explain(
            absl::StrFormat("%s rose from step %d on, by at least a %s, and is back in step %d: it "
                            "is %.4g (median of %d points), and its best value is %.4g.",
                            series.op, stated.onset, stated.raised ? "third" : "tenth", rise.step,
                            rise.value(rise.level), rise.block, rise.value(rise.best)))
        .Cause("recovered", 0.95)
        .Measured("level / best block", rise.value(rise.level) - rise.value(rise.best))
        .Threshold(0, "less than 5 % of the rise remains")
        .FalseAlarm("measured", kLossAlarms)
        .Samples(rise.since)
        .Witness("onset_step", static_cast<double>(stated.onset))
        .Fix(kBackFix);
    PlaceOnset(series, stated.onset, rise.step, "recovered", &found);
    return found;
  }

  static void DescribeRise(const LossSeries& series, const Rise& rise, FindingBuilder* found) {
    const Height height = HeightOf(rise.level - rise.best, rise.best, rise.sigma, rise.linear);
    const double tenth = PartOf(rise.third ? 1.0 / 3 : 0.1, rise.best, rise.sigma, rise.linear);
    found
        ->Explain(
            absl::StrFormat("%s is %.4g in step %d (median of %d points), %s above its best value, "
                            "%.4g, and still rises: the slope is above 0 at 99 %% confidence.",
                            series.op, rise.value(rise.level), rise.step, rise.block,
                            HowFar(rise.level - rise.best, rise.best, rise.sigma, rise.linear),
                            rise.value(rise.best)))
        .Measured("rise above the best block", height.value, height.unit)
        .Threshold(HeightOf(tenth, rise.best, rise.sigma, rise.linear).value,
                   "and at least 6 standard errors of the two medians")
        .Samples(rise.since)
        .FalseAlarm("measured", kLossAlarms)
        .Witness("onset_step", static_cast<double>(rise.onset_step))
        .Witness("best", rise.value(rise.best))
        .Witness("level", rise.value(rise.level))
        .Witness("points_since_best", static_cast<double>(rise.since))
        .Witness("sigma", rise.sigma);
    if (!series.rate_known)
      found->Assume("the learning rate did not rise again (no learning rate is recorded)");
  }

  // Reports a loss that ends a third above its first level, with any course between.
  std::optional<FindingBuilder> EndsAbove(const LossSeries& series, const EndFigures& end,
                                          Stated& stated) const {
    if (stated.open && !(stated.drifts && !stated.raised)) return std::nullopt;
    stated.onset = stated.open ? std::min(stated.onset, end.rise_step) : end.rise_step;
    stated.open = true;
    stated.drifts = false;
    stated.attempt = series.attempt;
    stated.of.insert(kAbove);
    FindingBuilder found = EndsAboveFinding(series, end, stated.onset);
    if (MayRise(series)) Soften(series, &found);
    SoftenExplained(series, &found);
    return found;
  }

  // Reports a rise at the end of the data, which leaves no time for a full excursion.
  std::optional<FindingBuilder> RoseAtEnd(const LossSeries& series) const {
    std::optional<FindingBuilder> found = ExplosionFinding(series);
    if (!found) found = LastingRiseFinding(series);
    if (!found) found = PlungeFinding(series);
    if (!found) found = EarlyBreakFinding(series);
    if (!found) return found;
    if (MayRise(series)) Soften(series, &*found);
    SoftenExplained(series, &*found);
    return found;
  }

  // Reports that a loss that had ended above its beginning came back.
  std::optional<FindingBuilder> CameBack(const LossSeries& series, const EndFigures& end,
                                         Stated& stated) const {
    stated.of.erase(kAbove);
    stated.open = false;
    FindingBuilder found = CameBackFinding(series, end, stated.onset);
    if (MayRise(series)) Soften(series, &found);
    SoftenExplained(series, &found);
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
