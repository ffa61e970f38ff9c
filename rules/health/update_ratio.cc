#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "analysis/series/series.h"
#include "analysis/tensor/tensor.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/update-ratio

A step changes the weights by far too little or far too much, relative to their size.

**Why.** A step of the optimizer usually changes a weight matrix by about a thousandth of its norm. At 10^-7 a run of 100,000 steps moves the weights by a hundredth,
if all its steps point in one direction: the rate is a thousand times too small, and the loss falls as slowly as if the data were hard. At 0.3, three steps replace the
values of the weights, and the model loses what it learned.

**Bad.** `update_ratio was below 10^-4 in 100 points in a row (steps 30 to 129), 10^-6.8 on average, at a rate of 3e-8`

**Good.** Around 10^-3; less in the decay of a schedule, more in its first steps.

**How to fix it.**
- Too small: the rate, its unit, a multiplier per layer; `unscale_` called twice; gradients averaged twice (a mean over micro-batches and over ranks).
- Too large: the rate; a warm-up; clipping (`clip_grad_norm_`), which AdamW's normalisation does not replace; an initialisation near zero.
- Fine-tuning at 10^-6 on purpose: `--set health/update-ratio.low=-6`.

**What it checks.** log10 of |change| / |weight| (Euclidean norms), against [-4, -1] (options `low`, `high`):
- series whose role is the update ratio; `run.watch` records `update_ratio`, from up to 1,024 elements of each of the 16 largest parameters. A negative value is
  treated as the log10 itself;
- observed updates of tensors with at least two axes, by the sampled elements before and after, or, where no elements were kept, by the mean magnitudes of the change
  and of the weight that was observed with it. Biases and gains are left out: near 0 a bias has no scale.

A point counts if the weight is not zero and the learning rate is in use: recorded ten times without a new maximum (not in a warm-up), and at least a tenth of its
maximum. A finding needs 100 consecutive points on one side (option `points`), or 20 of them that lie over 200 steps or more; 8 over 200 steps are enough if every
point of the run lies two decades below `low`. A ratio that was inside before must lie twice as far from there, and by two deviations of what was inside, as the gradient's fall explains: noise that stays near a limit for tens of steps is not a wrong
rate.

**In checkpoints** many steps lie between two weights, and no limit fits: the ratio is shown (the verdict of `weights`: median, lowest and highest over 2,048 sampled
elements of each weight with two axes), and judged against the run's own weights alone. A note, `heuristic`, needs a weight whose ratio, over the rate of its
parameter group, is a thousand times the median's or a thousandth of it, on the same side between each two of four checkpoints, and eight weights that changed. (The
second factor of a LoRA begins as zeros and moves so for a while.)

**Strength.** `statistical`, its false-alarm rate measured: of 1,000 simulated healthy runs of 1,500 steps (warm-up, cosine, linear and constant rates; the ratio
log-normal around 10^-2 to 10^-3.2 at the peak, with correlated noise; SGD whose gradients fall by three decades; logged in each step or each tenth, with the rate
and without) one alarmed (SGD, noise that stays for tens of steps), so at most 0.5 % with 95 % confidence. The limits themselves are customary.

**Inconclusive when** fewer than 100 points counted, the learning rate was never in use, the ratio is too low and no recorded rate excludes a decay or warm-up, or
the gradient's norm fell as far as the ratio did, or further, or to 0: then the loss is at its minimum or the gradients vanish (`health/gradient-vanish`,
`health/all-zero`), and no rate is wrong.

**What it cannot see.** A tensor that is never observed; one layer among many in a series of the whole model; a ratio that is wrong in the first steps alone.

**Cost.** Some 600 bytes a series or tensor.

**Sources.** Karpathy, "CS231n: Neural Networks, Part 3", ratio of weights to updates (about 10^-3); You et al., "Large Batch Training of Convolutional Networks",
2017 (LARS); SageMaker Debugger's rules `WeightUpdateRatio` and `ExplodingTensor`.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "low",
     .type = OptionInfo::Type::kNumber,
     .unit = "log10(update norm / weight norm)",
     .default_value = "-4",
     .reason = "customary: a hundredth of the usual value, 1/1,000",
     .low = -30,
     .high = 0},
    {.name = "high",
     .type = OptionInfo::Type::kNumber,
     .unit = "log10(update norm / weight norm)",
     .default_value = "-1",
     .reason = "customary: ten updates of this size replace the weight",
     .low = -30,
     .high = 30},
    {.name = "points",
     .type = OptionInfo::Type::kInteger,
     .unit = "consecutive points",
     .default_value = "100",
     .reason = "customary: a single step does not show a wrong rate",
     .low = 20,
     .high = 1e6},
};

constexpr RuleInfo kInfo = {"health/update-ratio",
                            "updates are too small or too large for the weights",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr double kFalseAlarmsOfRatio = 5e-3;  // 1 of 1,000 runs alarmed: below 4.8 / 1000 at 95 %
constexpr size_t kMostRatioSites = size_t{1} << 16;

// Values of one site in one step.
struct RatioPoint {
  std::optional<double> reported;  // value of a recorded series
  double change_squares = 0, weight_squares = 0, gradient_squares = 0;  // over sampled elements
  double change_l1 = 0;                                                 // over the whole update
  uint64_t change_count = 0;
  std::optional<double> lr;
  bool gradient = false;
};

// A weight that was observed in the step of its update.
struct WeightLook {
  double l1 = 0;
  uint64_t count = 0;
};

struct RatioSite {
  RatioCourse course;
  RateAtWork own_rate;  // from updates that record their own learning rate
  uint32_t attempt = 0;
  bool reported = false;
  uint64_t empty = 0;  // steps in which the weight is zero
  int64_t step_first = 0;
  int64_t step_last = 0;
  void Persist(Archive& a) { a(course, own_rate, attempt, reported, empty, step_first, step_last); }
};

class UpdateRatio : public ScalarRule {
 public:
  explicit UpdateRatio(const Options& options)
      : roles_(options.roles()),
        limits_{.low = options.Number("low"),
                .high = options.Number("high"),
                .points = static_cast<uint64_t>(options.Integer("points"))} {}

  bool ReadsScalar(const v1::Site& site) const override {
    if (ChangeCourses::ReadsScalar(site)) return true;
    const SeriesRole role = roles_.Of(site.op());
    return role == SeriesRole::kUpdateRatio || role == SeriesRole::kRate ||
           role == SeriesRole::kGradientNorm;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    changes_.Take(step);
    const SeriesRole role = RoleOf(step);
    for (const Item& item : step.items) {
      const v1::Evidence& evidence = *item.evidence;
      if (evidence.has_scalar()) {
        TakeScalar(step, role, evidence.scalar().value());
      } else if (evidence.has_tensor()) {
        TakeTensor(step.site.layer(), evidence.tensor());
      } else if (evidence.has_update()) {
        TakeUpdate(step, evidence.update());
      }
    }
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    changes_.Close(step, out);
    RateAtWork& rate = rates_[step.role];
    if (rate_) rate.Take(*rate_);
    for (const auto& [place, point] : open_) {
      if (!point.reported && IsOneAxis(place.first)) continue;
      RatioSite* site = Find(step, place);
      if (site != nullptr) Take(step, place, point, rate, *site, out);
    }
    open_.clear();
    weights_.clear();
    rate_.reset();
    gradient_.reset();
  }

  const void* judges_apart() const override { return this; }
  // Takes rows without an update ratio. Uses only their learning rates.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    const auto of = [&](SeriesRole role) {
      return rows.Of([&](const SiteStep& any) { return RoleOf(any) == role; });
    };
    if (rows.Has("held") || !of(SeriesRole::kUpdateRatio).empty()) return 0;
    const std::vector<ScalarColumn> reported = of(SeriesRole::kRate);
    RateAtWork& rate = rates_[rows.end.role];
    for (size_t row = first; !reported.empty() && row < rows.size(); ++row) {
      if (const auto largest = LargestOf(reported, row)) rate.Take(*largest);
    }
    return rows.size() - first;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    changes_.Rest(out);
    for (const auto& [key, site] : sites_) {
      if (site.reported) continue;
      v1::Verdict verdict = Rest(site);
      Put(*verdict.mutable_details(), "points", static_cast<double>(site.course.counted()));
      if (std::get<2>(key) != "update") Put(*verdict.mutable_details(), "series", std::get<2>(key));
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), site.step_first, site.step_last,
               std::vector<uint32_t>{});
      out.Add(std::move(verdict));
    }
  }

  // open_, weights_, rate_, gradient_ are empty between steps. known_ is found after a restore.
  void Persist(Archive& archive) override {
    archive.Version(4, 4);
    archive(sites_, rates_, flat_, deep_);
    changes_.Persist(archive);
  }

 private:
  using Place = std::pair<std::string, std::string>;  // layer, op

  SeriesRole RoleOf(const SiteStep& step) {
    return known_.Of(step, [&] { return roles_.Of(step.site.op()); });
  }

  void TakeScalar(const SiteStep& step, SeriesRole role, double value) {
    if (role == SeriesRole::kRate && std::isfinite(value))
      rate_ = std::max(rate_.value_or(0), std::fabs(value));
    if (role == SeriesRole::kGradientNorm && !gradient_) gradient_ = value;
    if (role != SeriesRole::kUpdateRatio) return;
    std::optional<double>& reported = open_[{step.site.layer(), step.site.op()}].reported;
    if (!reported || !std::isfinite(*reported)) reported = value;  // lowest rank, if finite
  }

  void TakeTensor(const std::string& layer, const v1::TensorState& state) {
    if (state.role() != "weight") return;
    const auto axes = std::count_if(state.shape().begin(), state.shape().end(),
                                    [](int64_t extent) { return extent > 1; });
    if (flat_.size() + deep_.size() < kMostRatioSites) (axes < 2 ? flat_ : deep_).insert(layer);
    WeightLook& look = weights_[layer];
    look.l1 += state.summary().l1();
    look.count += state.summary().count();
  }

  // Sums over all ranks: copies do not change the ratio, and shards are parts of one weight.
  void TakeUpdate(const SiteStep& step, const v1::Update& update) {
    if (IsAverage(update.config()) || IsAccumulation(update.config())) return;
    RatioPoint& point = open_[{step.site.layer(), step.site.op()}];
    if (std::isfinite(update.config().lr()) && update.config().lr() > 0)
      point.lr = std::max(point.lr.value_or(0), update.config().lr());
    point.change_l1 += update.summary().applied_l1();
    point.change_count += update.summary().count();
    const auto c = DecodeUpdate(update);
    if (!c.ok()) return;
    for (size_t i = 0; i < c->size(); ++i) {
      const double change = c->after[i] - c->before[i];
      point.change_squares += change * change;
      point.weight_squares += c->before[i] * c->before[i];
      if (c->gradient.empty()) continue;
      point.gradient_squares += c->gradient[i] * c->gradient[i];
      point.gradient = true;
    }
  }

  bool IsOneAxis(const std::string& layer) const {
    if (flat_.contains(layer)) return true;
    return !deep_.contains(layer) && IsOneAxisByName(layer);
  }

  RatioSite* Find(const StepEnd& step, const Place& place) {
    const auto key = std::tuple(step.role, place.first, place.second);
    if (const auto found = sites_.find(key); found != sites_.end()) return &found->second;
    if (sites_.size() >= kMostRatioSites) return nullptr;
    RatioSite& site = sites_[key];
    site.step_first = site.step_last = step.step;
    site.attempt = step.attempt;
    return &site;
  }

  // Returns NaN if the ratio is unknown; nullopt if the weight is zero or was not observed.
  std::optional<double> RatioOf(const Place& place, const RatioPoint& point) const {
    // A ratio is never negative: a negative value is its log10.
    if (const auto ratio = point.reported) return *ratio < 0 ? std::pow(10.0, *ratio) : *ratio;
    if (point.weight_squares > 0 || std::isnan(point.weight_squares))
      return std::sqrt(point.change_squares / point.weight_squares);
    const auto weight = weights_.find(place.first);
    if (weight == weights_.end() || point.change_count == 0 || weight->second.count == 0)
      return std::nullopt;
    const double mean = weight->second.l1 / static_cast<double>(weight->second.count);
    if (mean == 0) return std::nullopt;
    return point.change_l1 / static_cast<double>(point.change_count) / mean;
  }

  void Take(const StepEnd& step, const Place& place, const RatioPoint& point,
            const RateAtWork& rate, RatioSite& site, VerdictSink& out) {
    site.step_last = std::max(site.step_last, step.step);
    if (site.attempt != step.attempt) site.course.Restart();
    site.attempt = step.attempt;
    const std::optional<double> ratio = RatioOf(place, point);
    if (!ratio) {
      ++site.empty;
      return;
    }
    if (point.lr) site.own_rate.Take(*point.lr);
    const RateAtWork& known = rate.reported() ? rate : site.own_rate;
    std::optional<bool> at_work;
    if (known.reported()) at_work = known.at_work();
    std::optional<double> gradient = gradient_;
    if (!point.reported)
      gradient = point.gradient ? std::optional(std::sqrt(point.gradient_squares)) : std::nullopt;
    site.course.Take(step.step, *ratio, at_work, gradient, limits_);
    if (site.reported || !IsWrong(site.course)) return;
    site.reported = true;
    out.Add(Found(step, place, site, known));
  }

  bool IsWrong(const RatioCourse& course) const {
    if (!course.Outside(limits_) || course.Hovers()) return false;
    if (course.run().side > 0) return true;
    return !course.FellWithGradient() && (course.rated() || !course.MayBeSchedule());
  }

  v1::Verdict Found(const StepEnd& step, const Place& place, const RatioSite& site,
                    const RateAtWork& rate) const {
    const OutsideRun& run = site.course.run();
    const bool small = run.side < 0;
    const double limit = small ? limits_.low : limits_.high;
    const std::string who = place.second == "update" ? place.first : place.second;
    const std::string mean = run.zeros == run.points ? "0" : absl::StrFormat("10^%.1f", run.mean());
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.FalseAlarm("measured", kFalseAlarmsOfRatio)
        .Title(small ? "updates are far too small for the weights"
                     : "updates are far too large for the weights")
        .Explain(absl::StrFormat(
            "%s: update norm / weight norm was %s 10^%g in %d consecutive points (steps %d to %d), "
            "%s on average%s.",
            who, small ? "below" : "above", limit, run.points, run.first, step.step, mean,
            rate.reported() ? absl::StrFormat(", at a learning rate of %.3g", rate.newest()) : ""))
        .Cause(small ? "updates-too-small" : "updates-too-large", 0.8)
        .Measured("log10(update norm / weight norm)",
                  run.zeros == run.points ? -HUGE_VAL : run.mean())
        .Threshold(limit, small ? "option low, customary" : "option high, customary")
        .Fix(small ? "Check the learning rate and its unit, multipliers per layer, and whether "
                     "gradients are averaged or unscaled twice."
                   : "Lower the learning rate, warm up, and clip the gradient norm.")
        .Samples(run.points)
        .Witness("points", static_cast<double>(run.points))
        .Witness("first_step", static_cast<double>(run.first))
        .At(place.first, place.second, run.first, step.step, std::vector<uint32_t>{});
    if (rate.reported()) found.Witness("rate", rate.newest());
    if (!rate.reported())
      found.Assume("the learning rate is above 0 in these points: none was recorded");
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    if (place.second != "update") Put(details, "series", place.second);
    Put(details, "step", static_cast<double>(run.first));
    Put(details, "kind", small ? "too-small" : "too-large");
    return found.Take();
  }

  v1::Verdict Rest(const RatioSite& site) const {
    const RatioCourse& course = site.course;
    if (course.Outside(limits_) && course.FellWithGradient())
      return Inconclusive("fell-with-gradient: the ratio fell as far as the gradient norm");
    if (course.Outside(limits_) && course.Hovers())
      return Inconclusive("hovers: the ratio is near a limit, within its own noise");
    if (course.Outside(limits_))
      return Inconclusive(
          "no-rate: the ratio is low; no learning rate was recorded, so a schedule may explain it");
    if (course.counted() >= limits_.points)
      return Pass("the size of updates fits the size of the weights");
    if (course.counted() + course.resting() == 0 && course.non_finite() > 0)
      return Inconclusive("poisoned: every value is NaN or infinite");
    if (course.counted() + course.resting() == 0)
      return Inconclusive("no-weight: the weight is zero, or was not observed with the update");
    if (course.counted() == 0)
      return Inconclusive(
          "rate-not-at-work: the learning rate is in its warm-up, or below a tenth of its maximum");
    return Inconclusive(absl::StrCat("few-points: fewer than ", limits_.points,
                                     " with a learning rate of at least a tenth of its maximum"));
  }

  const SeriesRoles roles_;  // stated by the user
  SiteMemo<SeriesRole> known_;
  RatioLimits limits_;
  std::map<Place, RatioPoint> open_;  // the values of this step, like the next three members
  std::map<std::string, WeightLook> weights_;  // by layer
  std::optional<double> rate_;                 // the largest learning rate
  std::optional<double> gradient_;             // of the whole model
  std::map<std::tuple<v1::Role, std::string, std::string>, RatioSite> sites_;
  std::map<v1::Role, RateAtWork> rates_;
  ChangeCourses changes_;              // judges weights in checkpoints
  std::set<std::string> flat_, deep_;  // weights with fewer than two axes, and with more
};

}  // namespace

CatalogueEntry update_ratio() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<UpdateRatio>(options);
          }};
}

}  // namespace plumbline::rules
