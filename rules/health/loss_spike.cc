#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/loss_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/loss-spike

A loss jumped above its level.

**Why.** A spike that comes back within 20 steps has cost 20 steps; if the loss stays high, all later steps are lost. PaLM's 540B training
met about 20 spikes and went back some 100 steps before each, skipping 200 to 500 batches: if a person sees the spike after a day, the run
goes back a day. A jump of 10 % in a loss of 2.3 is all that a broken data shard, a bad host or a rate that is too high shows at first.

**Bad.** `train_loss`: 2.31 in steps up to 4,209, then 4.87, z = 196, and not below 3.9 in the 128 points that follow.

**Good.** A warm-up; noise of 10 % that is there all the time; a restart of the rate; a batch now and then that is twice
as hard, as others were before it.

**How to fix it.**
- Go back to a checkpoint before the onset and skip the batches around it; if it occurs again at the same batch, look at
  the data of that batch.
- Where it comes again at other batches: lower the rate, lengthen the warm-up, clip the gradient norm, z-loss.
- Check the verdicts of `health/gradient-spike`, `precision/non-finite` and `drift/*` on the steps before.

**What it checks.** Each series with the word `loss` in its name; points count, not steps. Of several ranks that report a
series the lowest rank's value counts. The logarithm of each value (the value itself once one is 0 or less) is compared
with the newest 16 to 128 points before it: level *m* (median of the newest quarter), slope *b* (medians of both halves),
scale *s* = 1.4826 x the median distance of the residuals from their median, at least 0.005 and at least the smallest step
between two values (logs are rounded). z = (y - m)/s.
- *Opens* at z >= 6 where z >= 8 and the loss is 10 % up; or where 7 of the 9 points from there on are at z >= 3. The
  *onset* is the first of the unbroken points at z >= 3 that lead to it.
- *Back* are three points in a row under z = 3, compared with the frozen m, s and the fall of a power law.
- *Kind.* `recovered`: back within 128 points. Else, by the median excess of its first and last quarter: `spike` where it
  shrinks below 0.8 of itself, `divergence` where it grows to 1.5 times as the loss itself rises, or is at least a third
  above the level (an error of `health/loss-divergence`, to which this incident then points), `level-shift` otherwise. Under 16 points, or under 64
  that do not grow: `spike`.
- *Short* ones (at most 3 points at z >= 3, or at most half of them) are notes unless they rise 2.5 times higher than
  anything in the 512 points before, and, where under 128 of these are known, to z = 16. In the 128 points after the rate
  went up again (to 1.5 times a low that was at most 3/4 of an earlier value) what stays under a third is a note. All
  else is a warning.
- *Restarts of a schedule* (cosine with warm restarts, cycles). The rate had fallen to half of an earlier maximum or less,
  doubles at least from there, and goes no higher than that maximum. An excursion that begins while the rate rises, or within the
  next 32 points (the level is a median of as many and had no time to follow), is a note that names the restart,
  whatever its height, and is compared
  with the level before the restart. It is judged when the rate is back (at 1.5 times that low, above which it counts as risen): three
  points in a row that are then still a tenth and 3 scales above that level are a `level-shift`, or a `divergence` from a third on, as
  without a restart. A rate that a resume puts back excuses nothing (`health/learning-rate`), nor does one that rises above all it was before.
- *Switched on.* If another loss leaves exactly 0, or begins, within two rows of the onset, and its first 5 values reach half of the jump, it is a note.
- *Around 0* (the level is under 60 scales: a likelihood or a bound that crosses it) percentages have no meaning, and
  a warning is an excursion that lasts,
  rises 1.5 times above the highest of the 512 points before, and has 128 of them to know the noise by; with fewer, what jumps there in one
  point and stands 16 scales high, where the values before lie about their middle as noise does, not most of them on
  it (a hinge; 48 points are needed). What starts at 0 and grows by design, as the penalty of a policy does, stays a note so
  long.

An evaluation (`val`, `eval`, `test`, `dev`, `valid`, `heldout` as a word of the name) that rises step by step is not a spike,
but a case of `health/overfit`; one that jumps is judged as any other. A loss that may rise, as `health/loss-divergence` has it (the sum of a
game, a part of a loss), and does so step by step is a note; one that jumps is a warning.

**Strength.** `statistical`, `measured`: at most 1.2 warnings in a million points at 95 % confidence: 27 of 28,000 simulated healthy
curves (33.6 million points), none of 48 small models trained for this; none of them was used to choose a number. The
simulations are part of the tests (docs/measurements/losses.md has the families and the faults found). docs/measurements/short_runs.md has
what excursions find of runs of 10 to 1,000 points (its columns *before*), next to `health/loss-divergence`.

**Inconclusive when** the series has under 100 points. Findings are made from 17 points on.

**What it cannot see.** A rise slower than the noise allows (`health/loss-divergence` looks at blocks). What changes
within a step. **Known alarms:** two data sets mixed batch by batch (0.3 to 1.3 in 1,000 points), noise with tails
as heavy as Student's t (with 5 degrees of freedom 0.02, with 3 up to 0.5), losses that were smoothed over a hundred points,
restarts of a rate that is not logged. Of simulated runs, 20 each (docs/measurements/losses.md): a running mean that is reset each epoch, a
sawtooth (9 runs accused), last batches of an epoch that are small and so noisier (3): log each batch's own loss, and drop the last one.
By design, and accused all the same: a contrastive loss with a queue (MoCo) that rises in its first 50 points as the
queue fills; the resets of opacity
in Gaussian splatting. Missed: a spike just after the step down from one epoch to the next in a fine-tuning of several
epochs, which the level has not followed yet.
Around 0, in the first 144 points: a jump of under 16 scales, or one that takes several points, is a note.

**Cost.** A fraction of a microsecond a point, some 300 KB a series, whatever its length.

**Sources.** Amazon SageMaker Debugger `LossNotDecreasing` (a difference of 0.1 % over 10 steps) and `Overfit`; OLMo's
spike score (points more than 6 deviations above a rolling mean of 128); Megatron-LM `--rerun-mode` (a result more than a factor
above the largest one); msprobe's loss monitor. A fixed percentage accuses a noisy loss and misses a quiet one; a rolling
deviation is blind after its first spike, and alarms on noise with heavy tails. Hence medians, a frozen level, and the
comparison with what the series itself did before. Chowdhery et al., "PaLM", 2022, section 5.1.
)page";

constexpr RuleInfo kInfo = {
    "health/loss-spike",   "the loss jumped", v1::LEVEL_WARNING, "0.1.0", kPage, {},
    /*alpha_weight=*/0,
    /*decides_early=*/true};

const char* TitleOf(const Excursion& e, ExcursionKind kind) {
  if (e.by_schedule()) return "the loss rose when the learning rate restarted";
  switch (kind) {
    case ExcursionKind::kSpike:
      return "the loss jumped";
    case ExcursionKind::kRecovered:
      return "the loss jumped and came back";
    case ExcursionKind::kLevelShift:
      return "the loss jumped to a new level";
    case ExcursionKind::kDivergence:
      return "the loss jumped and diverges";
  }
  return "the loss jumped";
}

// Returns a higher confidence for a worse outcome, so that the report shows that finding first.
double ConfidenceOf(ExcursionKind kind) {
  switch (kind) {
    case ExcursionKind::kSpike:
      return 0.5;
    case ExcursionKind::kRecovered:
      return 0.7;
    case ExcursionKind::kLevelShift:
      return 0.8;
    case ExcursionKind::kDivergence:
      return 0.9;
  }
  return 0.5;
}

// Describes how the excursion ended.
std::string EndOf(const Excursion& e, ExcursionKind kind, bool opened) {
  if (e.overstayed)
    return absl::StrCat(" Just before, ", RestartWords(e),
                        ": the learning rate is back, but the loss is not.");
  if (e.by_schedule())
    return absl::StrCat(" Just before, ", RestartWords(e),
                        ": the loss should come back when the learning rate does.");
  if (opened) return " It is still away.";
  switch (kind) {
    case ExcursionKind::kSpike:
      return absl::StrCat(" It was last away in step ", e.last_step, ".");
    case ExcursionKind::kRecovered:
      return absl::StrCat(" It was last away in step ", e.last_step, ".");
    case ExcursionKind::kLevelShift:
      return " It stays there.";
    case ExcursionKind::kDivergence:
      return " It stays at least a third above, or grows: see health/loss-divergence.";
  }
  return "";
}

class LossSpike : public LossRule {
 public:
  explicit LossSpike(const Options& options) : LossRule(options) {}

 protected:
  std::optional<FindingBuilder> Emit(const LossSeries& series, const SeriesEvent& event,
                                     Stated& stated) const override {
    if (event.of_rise()) return std::nullopt;
    const Excursion& e = event.excursion;
    const bool reported = std::exchange(stated.open, true) && stated.onset == e.onset_step;
    stated.onset = e.onset_step;
    // The final report of an excursion replaces its first one.
    if (Overfits(series, e)) {
      stated.open = false;
      if (!reported) return std::nullopt;
      return Overfit(series, e);
    }
    // An evaluation loss does not diverge.
    const bool shift = series.evaluation() && e.kind == ExcursionKind::kDivergence;
    FindingBuilder found =
        Found(series, e, shift ? ExcursionKind::kLevelShift : e.kind,
              event.what == SeriesEvent::What::kOpened || event.what == SeriesEvent::What::kGrew);
    // Such a loss may rise without a fault, but not jump. A policy's loss may also jump: its mean
    // is 0.
    if ((!e.jumped || e.grew() || IsPolicy()) && MayRise(series)) Soften(series, &found);
    SoftenNoise(series, e, &found);
    SoftenJump(series, e, &found);
    return found;
  }

  std::optional<v1::Verdict> Rest(const LossSeries& series) const override {
    if (auto few = FewPoints(series, 100)) return few;
    return Pass("it never left its level");
  }

 private:
  // Returns an empty string around 0, where a percentage has no meaning.
  static std::string ShareWords(const Excursion& e) {
    return e.linear ? "" : absl::StrFormat("%.3g %% and ", 100 * e.peak_share());
  }

  // The first 16 points open no excursion. If the loss explodes from one of them, the excursion's
  // own onset is too late.
  static int64_t OnsetOf(const LossSeries& series, const Excursion& e) {
    const ExplosionFigures figures = series.detector.LookForExplosion();
    return figures.explodes ? std::min(e.onset_step, figures.rise_step) : e.onset_step;
  }

  // Returns a note that replaces a report that was too severe.
  static FindingBuilder Overfit(const LossSeries& series, const Excursion& e) {
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    found.Title("the evaluation rises while training falls")
        .Explain(absl::StrFormat(
            "%s left its level of %.4g in step %d and rose to %.4g in step %d, while the training "
            "loss falls: this is not a jump. See health/overfit.",
            series.op, e.value(e.level), e.onset_step, e.peak_value, e.peak_step))
        .Cause("overfit", 0.8)
        .Measured("highest excess over the level", e.peak_z(), "scales")
        .Threshold(6, "as for a jump")
        .FalseAlarm("measured", kLossAlarms)
        .Fix("Stop at the best evaluation, or train on more data.");
    DescribeExcursion(series, e, &found);
    PlaceOnset(series, e.onset_step, e.last_step, "overfit", &found);
    return found;
  }

  static FindingBuilder Found(const LossSeries& series, const Excursion& e, ExcursionKind kind,
                              bool opened) {
    const double level = e.value(e.level);
    const int64_t onset = OnsetOf(series, e);
    FindingBuilder found(e.warns() ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    found.Title(TitleOf(e, kind))
        .Explain(
            absl::StrFormat("%s left its level of %.4g in step %d and reached %.4g in step %d: "
                            "%s%.3g times its noise scale above; %d of %d points were away.%s",
                            series.op, level, onset, e.peak_value, e.peak_step, ShareWords(e),
                            e.peak_z(), e.above, e.points, EndOf(e, kind, opened)))
        .Cause(NameOf(kind), ConfidenceOf(kind))
        .Measured("highest excess over the level", e.peak_z(), "scales")
        .Threshold(6, "the spike score of OLMo; in addition this rule needs 10 %, or 7 of 9 points")
        .FalseAlarm("measured", kLossAlarms)
        .Fix(e.by_schedule()
                 ? "If the schedule restarts on purpose, do nothing: check that the loss falls "
                   "below this value at the next low of the learning rate."
                 : "Go back to a checkpoint before the onset, and skip the batches around it. If "
                   "it happens again, check that data, or lower the learning rate.");
    if (e.warns() && !e.by_schedule()) {
      const std::string resumed = BlameResume(series, onset, &found);
      found.Explain(found.finding().explanation() + resumed);
    }
    DescribeExcursion(series, e, &found);
    if (e.restart) found.Assume("the learning rate rose again at most 128 points before");
    PlaceOnset(series, onset, e.last_step, NameOf(kind), &found);
    return found;
  }
};

}  // namespace

CatalogueEntry loss_spike() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LossSpike>(options);
          }};
}

}  // namespace plumbline::rules
