#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/scale_series.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/loss-scale

The loss scale keeps falling, is at its floor, or too many steps are skipped: gradients overflow repeatedly.

**Why.** Each halving is a step whose gradients were discarded. A scaler whose scale is right loses one step in 2,000. One that halves every 30 steps loses one in 30, and after ten such halvings the scale is a thousandth of what it was: gradients below 6e-8 over it are 0 in fp16, and more of the small ones with every halving. At 1 the scale cannot fall further, and a run that still overflows skips every step.

**Bad.** `loss_scale halved 3 times in points 140 to 191, from 65,536 to 8,192`

**Good.** A scale that is constant (bf16 and fp32 runs log 1), or doubles every 2,000 steps and now and then comes back.

**How to fix it.**
- Train in bf16: PyTorch `torch.autocast(dtype=torch.bfloat16)`, Megatron-LM `--bf16`, DeepSpeed `"bf16": {"enabled": true}`.
- Look for what grows: `health/gradient-spike`, `precision/non-finite` names the first NaN or infinite tensor.
- Lower the learning rate, clip (`clip_grad_norm_` after `scaler.unscale_`), keep softmax, norms and the loss in fp32.
- The scaler: Megatron-LM `--min-loss-scale`, `--hysteresis`; DeepSpeed `"hysteresis"`, `"loss_scale_window"`.

**What it checks.** Series whose role is the loss scale (`loss_scale`, `train/loss scale`, ...), point by point, and series that count what was skipped (`skipped`, `number of skipped iterations`, `overflow`). The first 100 points of each attempt are none: a scaler starts high and looks for its level. Then, each once:
- *halvings*: at least 3 within 100 points (a fall to an eighth is three), and the scale ends at a quarter or less of what it was before them: a scaler that tries twice its level and comes back is well;
- *skipped*: more than 50 skipped steps within 1,000, by the halvings or by the series of what was skipped (a flag, a count since the last point, or a running count: as long as it never falls it is treated as one; fractions count, too);
- *floor*: the scale is 1 or less (option `floor`), and was higher once;
- *floor* as well, the first 100 points included: the scale falls to a thousandth, and to a thousandth of its highest (icefall stops at 1e-5);
- a fall that was reported becomes a note, if the scale ends at a sixteenth of its highest value or more, and more than four times as high as at that point;
- *storm*: in ten points in a row (50 if they begin with the attempt) half of the steps or more were skipped, by a series that counts them, the first 100 points included: an error while it lasts, a warning once it has ended. `number of ...` counts the steps since the point before.

**Strength.** `statistical`, its false-alarm rate measured: of 1,000 simulated healthy runs of 4,000 steps (dynamic scalers that start at 2^16 and 2^32, grow every 1,000 or 2,000 steps, gradients log-normal with correlated and heavy-tailed noise, one in four resumed) none alarmed, so at most 0.3 % with 95 % confidence. The thresholds themselves are customary. Of 300 such runs of 1,000 steps with a flag of skipped steps none is a storm; one is found in its tenth row, in a run of 20, 60 or 200 points alike (docs/measurements/short_runs.md).

**Inconclusive when** fewer than 100 points after the start-up were recorded, or none is a positive number.

**What it cannot see.** Overflow in a run that logs no scale; a scale that falls for long within the first 100 points, without a count of skipped steps; a static scale that is too high where nothing counts what is skipped; a flag that is logged in every tenth step alone, which is treated as the count of ten.

*Of a trainer's log* `plumb audit` counts the sentences of a loss scaler (`OVERFLOW! ... reducing to 32768`, `Gradient overflow. Skipping step`, `overflow detected, setting loss scale to`): a note, or an error if the scale falls ten times in a row to the end of the log, or to 1.

**Cost.** 1,100 points a series.

**Sources.** Micikevicius et al., "Mixed Precision Training", 2018; PyTorch `torch.amp.GradScaler` (growth every 2,000 steps), Megatron-LM `DynamicGradScaler` (initial scale 2^32, minimum 1, window 1,000), DeepSpeed `DynamicLossScaler`.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "floor",
     .type = OptionInfo::Type::kNumber,
     .unit = "loss scale",
     .default_value = "1",
     .reason = "the minimum of Megatron-LM and DeepSpeed; a smaller scale has no effect",
     .low = 0,
     .high = 1e12},
};

constexpr RuleInfo kInfo = {"health/loss-scale",
                            "the loss scale keeps falling",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions,
                            /*alpha_weight=*/0,
                            /*decides_early=*/true};

class LossScale : public ScalarRule {
 public:
  explicit LossScale(const Options& options)
      : roles_(options.roles()), floor_(options.Number("floor")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return IsLossScale(site.op()) || CountsThrownAway(site.op());
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    Known& known = known_.Of(step, [&] { return Find(step.site.op()); });
    const bool scale = known.scale;
    if (!scale && !known.skipped) return;
    // All ranks have the same scale. Takes the value of the lowest rank with a usable one.
    std::optional<double> value;
    bool reported = false;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar() || value) continue;
      reported = true;
      const double v = item.evidence->scalar().value();
      if (std::isfinite(v) && (scale ? v > 0 : v >= 0)) value = v;
    }
    if (!reported) return;
    if (known.series == nullptr) {
      const auto [place, fresh] =
          series_.try_emplace({step.role, step.site.layer(), step.site.op()});
      known.series = &place->second;
      if (fresh) {
        known.series->step_first = step.step;
        known.series->running = !CountsOfRows(step.site.op());
      }
    }
    ScaleSeries& s = *known.series;
    if (!value) {
      ++s.unusable;
      return;
    }
    if (s.attempt != step.attempt || s.points == 0) Begin(step, s);
    if (scale) {
      TakeScale(step.step, *value, s);
    } else {
      TakeSkipped(step.step, *value, s);
    }
    if (!s.reported) JudgeSeries(step, s, out);
  }

  const void* judges_apart() const override { return this; }
  // Takes rows in which no scale changes and no step is skipped.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    size_t taken = rows.size() - first;
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = known_.Of(column.any(), [&] { return Find(column.any().site.op()); });
      if (known.series == nullptr) return 0;
      const ScaleSeries& s = *known.series;
      const bool calm = s.attempt == rows.end.attempt && s.points > 0 && s.skips.skipped == 0 &&
                        s.streak.rows == 0 &&
                        (known.scale ? s.newest.scale > floor_ : s.newest.scale == 0);
      size_t same = 0;
      while (calm && same < taken && column.value(first + same) == s.newest.scale) ++same;
      taken = same;
    }
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = known_.Of(column.any(), [&] { return Find(column.any().site.op()); });
      for (size_t row = first; row < first + taken; ++row) {
        if (known.scale) {
          TakeScale(rows.steps[row], column.value(row), *known.series);
        } else {
          TakeSkipped(rows.steps[row], column.value(row), *known.series);
        }
      }
    }
    return taken;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, s] : series_) {
      if (s.streak.storm) out.Add(Storm(std::get<1>(key), std::get<2>(key), s));
      if (s.came_back()) out.Add(CameBack(std::get<1>(key), std::get<2>(key), s));
      if (s.reported) continue;
      const std::string& op = std::get<2>(key);
      v1::Verdict verdict = Rest(op, s);
      SetPlace(verdict, std::get<1>(key), op, s.step_first, std::max(s.step_first, s.newest.step),
               std::vector<uint32_t>{});
      Put(*verdict.mutable_details(), "series", op);
      Put(*verdict.mutable_details(), "points", static_cast<double>(s.judged));
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(4, 4);  // 4: the low scale that was reported
    archive(series_);
    if (archive.reading()) known_ = {};
  }

 private:
  // Cached facts of a site; recomputed after a restore.
  struct Known {
    bool scale = false, skipped = false;
    ScaleSeries* series = nullptr;  // set when the series exists
  };
  Known Find(const std::string& op) const {
    return {IsLossScale(op), CountsThrownAway(op), nullptr};
  }

  static void Begin(const SiteStep& step, ScaleSeries& s) {
    s.attempt = step.attempt;
    s.points = 0;
    s.window.clear();
    s.skips.Clear();
    s.streak.rows = 0;
  }

  static void TakeScale(int64_t step, double scale, ScaleSeries& s) {
    ScalePoint point{step, scale, 0};
    if (s.points > 0) point.halvings = HalvingsOf(s.newest.scale, scale);
    const int64_t steps = s.points > 0 ? step - s.newest.step : 1;
    s.newest = point;
    s.highest = std::max(s.highest, scale);
    s.lowest = std::min(s.lowest, scale);
    if (++s.points < kScaleStartUp) return;
    if (s.points > kScaleStartUp) {
      ++s.judged;
      s.skips.Add({step, steps, static_cast<double>(point.halvings)});
    }
    s.window.push_back(point);
    if (s.window.size() > kScaleWindow + 1) s.window.pop_front();
  }

  static void TakeSkipped(int64_t step, double value, ScaleSeries& s) {
    const double before = s.newest.scale;
    const int64_t steps = s.points > 0 ? step - s.newest.step : 1;
    if (s.points > 0 && value < before) s.running = false;
    const double skipped = !s.running ? value : s.points > 0 ? value - before : 0;
    s.newest = {step, value, 0};
    s.streak.Take(step, skipped, steps, s.points);
    if (++s.points <= kScaleStartUp) return;
    ++s.judged;
    // A number larger than the number of steps cannot be a count of skipped steps.
    if (skipped <= static_cast<double>(steps)) s.skips.Add({step, steps, skipped});
  }

  void JudgeSeries(const SiteStep& step, ScaleSeries& s, VerdictSink& out) const {
    std::optional<v1::Verdict> found;
    if (s.streak.Begins()) found = Storm(step.site.layer(), step.site.op(), s);
    if (!found) found = Halving(step, s);
    if (!found) found = Skipped(step, s);
    if (!found) found = Floor(step, s);
    if (!found) return;
    if (IsLossScale(step.site.op())) s.low = s.newest;
    s.reported = true;
    out.Add(*std::move(found));
  }

  static FindingBuilder Begun(const SiteStep& step, int64_t onset, const char* kind) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.FalseAlarm("measured", kFalseAlarmsOfScale)
        .Witness("step", static_cast<double>(onset))
        .At(step.site.layer(), step.site.op(), onset, step.step, std::vector<uint32_t>{});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", step.site.op());
    Put(details, "step", static_cast<double>(onset));
    Put(details, "kind", kind);
    return found;
  }

  // Reports consecutive rows in which most steps are skipped: an error until they end, then a
  // warning.
  static v1::Verdict Storm(const std::string& layer, const std::string& op, const ScaleSeries& s) {
    const bool ended = s.streak.rows == 0;
    FindingBuilder found(ended ? v1::LEVEL_WARNING : v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(ended ? "many consecutive steps were skipped" : "every step is skipped")
        .Explain(absl::StrFormat("According to %s most steps were skipped from step %d %s step %d: "
                                 "no skipped step changes a weight.",
                                 op, s.streak.first, ended ? "to" : "on, up to", s.streak.last))
        .Cause("steps-skipped", 0.9)
        .Measured("skipped steps from", static_cast<double>(s.streak.first), "step")
        .Threshold(static_cast<double>(s.streak.enough()),
                   "consecutive rows; a loss scaler that searches for its scale skips fewer")
        .Samples(s.points)
        .Witness("step", static_cast<double>(s.streak.first))
        .Fix(
            "Train in bf16, or find the tensor that overflows (precision/non-finite names the "
            "first one). Go back to a checkpoint before that step.")
        .At(layer, op, s.streak.first, s.streak.last, std::vector<uint32_t>{});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", op);
    Put(details, "step", static_cast<double>(s.streak.first));
    Put(details, "kind", ended ? "ended" : "storm");
    return found.Take();
  }

  static std::optional<v1::Verdict> Halving(const SiteStep& step, const ScaleSeries& s) {
    if (s.window.empty() || s.newest.halvings == 0) return std::nullopt;
    int64_t halvings = 0, points = 0;
    const ScalePoint* first = nullptr;
    for (size_t i = 1; i < s.window.size(); ++i) {
      if (s.window[i].halvings == 0) continue;
      if (first == nullptr) first = &s.window[i];
      halvings += s.window[i].halvings;
      ++points;
    }
    const double before = s.window.front().scale;
    if (halvings < kFewHalvings || !(s.newest.scale * kScaleFall <= before)) return std::nullopt;
    FindingBuilder found = Begun(step, first->step, "halvings");
    found.Title("the loss scale keeps falling")
        .Explain(absl::StrFormat("%s halved %d times at %d of %d points (steps %d to %d), from "
                                 "%.6g to %.6g: each time the gradients of a step were discarded.",
                                 step.site.op(), halvings, points, s.window.size() - 1, first->step,
                                 step.step, before, s.newest.scale))
        .Cause("overflow-storm", 0.9)
        .Measured("halvings within 100 points", static_cast<double>(halvings), "halvings")
        .Threshold(static_cast<double>(kFewHalvings),
                   "customary: a stable loss scaler has one halving in 2,000 steps")
        .Samples(s.window.size())
        .Witness("scale_before", before)
        .Witness("scale", s.newest.scale)
        .Fix(
            "Train in bf16, or find the tensor that overflows (precision/non-finite names the "
            "first one). Clip after scaler.unscale_, and lower the learning rate.");
    return found.Take();
  }

  static std::optional<v1::Verdict> Skipped(const SiteStep& step, const ScaleSeries& s) {
    if (!(s.skips.skipped > kMostSkipped) ||
        !(s.skips.skipped * kSkipWindow > kMostSkipped * static_cast<double>(s.skips.steps)))
      return std::nullopt;
    int64_t onset = step.step;
    for (const SkipPoint& point : s.skips.points) {
      if (point.skipped > 0) onset = std::min(onset, point.step);
    }
    FindingBuilder found = Begun(step, onset, "skipped");
    found.Title("too many steps are skipped")
        .Explain(absl::StrFormat("According to %s at least %.6g of %d steps (%d to %d) were "
                                 "skipped because of NaN or infinite gradients.",
                                 step.site.op(), s.skips.skipped, s.skips.steps,
                                 s.skips.points.front().step, step.step))
        .Cause("steps-skipped", 0.9)
        .Measured("skipped steps", s.skips.skipped, "steps")
        .Threshold(kMostSkipped, "customary: 5 % of 1,000 steps")
        .Samples(static_cast<uint64_t>(s.skips.steps))
        .Witness("skipped", s.skips.skipped)
        .Fix(
            "Train in bf16, or find the tensor that overflows (precision/non-finite names the "
            "first one). A static loss scale may be too high.");
    return found.Take();
  }

  std::optional<v1::Verdict> Floor(const SiteStep& step, const ScaleSeries& s) const {
    const bool floor = !s.window.empty() && s.newest.scale <= floor_ && s.highest > floor_;
    const bool tiny =
        s.newest.halvings > 0 && s.newest.scale <= kTinyScale * std::min(1.0, s.highest);
    if (!floor && !tiny) return std::nullopt;
    FindingBuilder found = Begun(step, step.step, "floor");
    found.Title("the loss scale is at its floor")
        .Explain(
            absl::StrFormat("%s is %.6g in step %d, point %d of this attempt, and was %.6g: %s.",
                            step.site.op(), s.newest.scale, step.step, s.points, s.highest,
                            tiny ? "gradients overflow at any scale, so they are not finite"
                                 : "it cannot become smaller"))
        .Cause("scale-floor", 0.9)
        .Measured("loss scale", s.newest.scale)
        .Threshold(floor ? floor_ : kTinyScale, floor ? "option floor" : "customary")
        .Samples(s.points)
        .Witness("scale", s.newest.scale)
        .Witness("highest", s.highest)
        .Fix(
            "Train in bf16; in fp16 find the tensor that overflows even at this scale "
            "(precision/non-finite).");
    return found.Take();
  }

  static v1::Verdict CameBack(const std::string& layer, const std::string& op,
                              const ScaleSeries& s) {
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_PROVED);
    found.Title("the loss scale fell and came back")
        .Explain(absl::StrFormat("%s was %.6g in step %d and is %.6g in step %d: it rose again, so "
                                 "the gradients were finite.",
                                 op, s.low.scale, s.low.step, s.newest.scale, s.newest.step))
        .Cause("recovered", 0.9)
        .Measured("loss scale", s.newest.scale)
        .Threshold(kScaleIsBack * s.highest, "a sixteenth of its highest")
        .Samples(s.points)
        .Witness("step", static_cast<double>(s.low.step))
        .Witness("lowest", s.lowest)
        .Fix("Look at the batches in the steps in which it fell.")
        .At(layer, op, s.low.step, s.newest.step, std::vector<uint32_t>{});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", op);
    Put(details, "step", static_cast<double>(s.low.step));
    Put(details, "kind", "recovered");
    return found.Take();
  }

  v1::Verdict Rest(const std::string& op, const ScaleSeries& s) const {
    if (s.points == 0) return Inconclusive("no-number: the series has no finite, positive value");
    if (s.judged < kScaleWindow)
      return Inconclusive(absl::StrCat("few-points: fewer than ", kScaleWindow,
                                       " beyond the first ", kScaleStartUp, " of an attempt"));
    if (!IsLossScale(op)) return Pass("at most 1 step in 20 was skipped");
    if (s.highest == s.lowest) return Pass("the loss scale is constant");
    return Pass("the loss scale reached a stable level");
  }

  bool IsLossScale(const std::string& op) const { return roles_.Of(op) == SeriesRole::kLossScale; }

  const SeriesRoles roles_;  // stated by the user
  double floor_;
  std::map<std::tuple<v1::Role, std::string, std::string>, ScaleSeries> series_;
  SiteMemo<Known> known_;
};

}  // namespace

CatalogueEntry loss_scale() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LossScale>(options);
          }};
}

}  // namespace plumbline::rules
