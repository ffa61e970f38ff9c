#include <algorithm>
#include <cmath>
#include <cstdint>
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
#include "analysis/policy/policy.h"
#include "analysis/series/series.h"
#include "rules/bases/norm_context.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/gradient-spike

The gradient's norm jumps far above its usual level, or explodes.

**Why.** A gradient 30 times its usual norm is 30 usual steps in one direction, taken at once, where nothing clips it; Adam's second moment
keeps it for 1 / (1 - beta2) steps (1,000 at 0.999), and makes all these steps shorter. The jump is seen here before the loss shows what it did. At
10^6 a gradient's larger elements no longer fit fp16 (65,504), and become infinite there.

**Bad.** `grad_norm rose from 0.41 to 13 in step 812 (31 times; 44 scales)`

**Good.** Noise and slow change around a level; a fall at the start; a norm that triples over 50 points.

**How to fix it.**
- Clip by norm: PyTorch `clip_grad_norm_(model.parameters(), 1.0)`, Megatron-LM `--clip-grad 1.0`, DeepSpeed `gradient_clipping`; log what it returns, which is the norm before the clip.
- Look at the batch of that step; skip batches whose norm is far out; a longer warm-up, a smaller beta2 (0.95), a lower rate.
- In fp16: `health/loss-scale`; a norm of gradients that are still scaled is too large by the scale.

**What it checks.** Series whose role is a gradient norm (`grad_norm`, `train/gnorm`, ...; `run.watch` records `grad_norm`), point by point, in ln:
- *Excursions*, as `health/loss-spike` defines them: a point 6 scales above the level that the newest 16 to 128 points
  predict, which is 8 scales and 10 % above it, or followed so that 7 of 9 points lie 3 scales above. A warning if it lasts (more than 3 of its points, and more than half of them) and rises 1.5
  times (in ln) as high as anything in the 512 points before, or 2.5 times (where under 128 of these are known, only at 16 scales), and to twice the
  level *above the value that a slow rise would have reached*: norms rise several times when a model begins to learn, but over tens of points.
  A slow rise makes 4 % a point, or what the window's slope *b* plus three standard errors of it is, from the highest
  value that it can have had at the onset (3 scales, or the delay of the level); where 128 points are known before, at most to eight times the level. Else a note. Kinds: `spike`, `recovered`
  (back within 128 points), `level-shift`, `divergence`. For 128 points after a restart of the learning rate, an excursion below a third is a note.
  In a policy's training (`reward`, `mismatch_kl`, ...) rows whose groups have no spread of rewards have a norm near 0. They are judged for explosions
  only: rows with such a spread of 0, or whose mean reward equals its lowest or highest value so far. A peak below a height that ten of nineteen points had
  before is a note.
- *Explosion*: above 10^6 in ten of the newest nineteen points, and 100 times what ten of nineteen were at most before. A
  norm above 10^6 from its first point on belongs to a summed loss, or to gradients that are still scaled: this is stated, but is not a finding.
- *Clipping*: a series of which at least 8 points, and 2 %, lie within 10^-4 of its largest value was logged after the clip. Larger values are not
  visible there, and a return from below is not a spike: such a series is inconclusive.

**Strength.** `statistical`, its false-alarm rate measured: of 4,000 simulated healthy runs of 2,000 points
(log-normal noise of 5 % to 50 %, correlated up to 0.9, a fall by up to 20 times at the start, a drift, rounded and sampled logs), at seeds that no
threshold was chosen with, none raised a warning: at most 0.08 % with 95 % confidence. Of 60,000 short ones of 30 to 300 points that rise, fall or wander slowly, with
noise of 1 % to 30 % that is normal or has heavy tails and may be correlated, grow or shrink, 30 were accused: at most 0.07 %. 10^6 is customary.

**Inconclusive when** fewer than 100 points were recorded, none is finite, or the norm was logged after the clip. Findings are made from 16 points on.

**What it cannot see.** A slow rise; a spike in the first 16 points; one layer's spike in the norm of all. In a short fine-tuning (under
some 150 points) too little was seen before to know the noise by: a norm 30 times as high may be a note. In a game (GAN, actor and critic) each side's
norm follows the other side: a quiet norm begins to swing where the other side catches up. If several optimizers have each a loss of their own
(`partial_loss.1`), less than 30 times the level is a note.

**Cost.** A tenth of a microsecond a point, at most a few hundred KB a series.

**Sources.** Chowdhery et al., "PaLM", 2022, on spikes; Takase et al., "Spike No More", 2023; SageMaker Debugger's rule `ExplodingTensor`, which
looks for NaN and infinity alone.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "explosion",
     .type = OptionInfo::Type::kNumber,
     .unit = "gradient norm",
     .default_value = "1e6",
     .reason = "customary: thousands of times the norm of usual runs",
     .low = 0,
     .high = 1e300},
};

constexpr RuleInfo kInfo = {"health/gradient-spike",
                            "the gradient norm jumped",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions,
                            /*alpha_weight=*/0,
                            /*decides_early=*/true};

constexpr uint64_t kFewNorms = 100;    // points
constexpr double kTimesBefore = 100;   // an explosion exceeds the lowest level by this factor
constexpr double kTimesInAGame = 30;   // times the level; an opponent's changes stay below this
constexpr double kFalseSpikes = 8e-4;  // 0 of 4,000 runs had a false alarm: bound at 95 %

class GradientSpike : public ScalarRule {
 public:
  explicit GradientSpike(const Options& options)
      : roles_(options.roles()), explosion_(options.Number("explosion")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    const SeriesRole role = roles_.Of(site.op());
    return role == SeriesRole::kGradientNorm || role == SeriesRole::kRate || IsOfASide(site.op()) ||
           KindOfPolicyRow(site.op(), role) != PolicyKind::kNone;
  }

  bool judges_unseen_steps() const override { return false; }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const Known& known = known_.Of(step, [&] { return Find(step); });
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      const double value = item.evidence->scalar().value();
      if (known.role == SeriesRole::kRate && std::isfinite(value))
        rate_ = std::max(rate_.value_or(0), std::fabs(value));
      if (known.kind != PolicyKind::kNone)
        policies_[step.role].Take(known.kind, step.site.op(), step.step, value);
      if (known.norm == nullptr) continue;
      // Uses the lowest rank with a finite value.
      std::optional<double>& norm = known.norm->second.value;
      if (!norm) open_.push_back(known.norm);
      if (!norm || !std::isfinite(*norm)) norm = value;
    }
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    Turn(step.role);
    const auto before = [](const Norm* a, const Norm* b) { return a->first < b->first; };
    if (!std::is_sorted(open_.begin(), open_.end(), before))
      std::sort(open_.begin(), open_.end(), before);
    for (Norm* norm : open_) {
      NormSeries*& series = norm->second.series;
      if (series == nullptr) {
        const auto [found, fresh] = series_.try_emplace(norm->first);
        series = &found->second;
        if (fresh) series->step_first = step.step;
      }
      Take(step, norm->first, *std::exchange(norm->second.value, std::nullopt), *series, out);
    }
    open_.clear();
    rate_.reset();
  }

  const void* judges_apart() const override { return this; }
  // Takes rows of known series, up to and including the first row that may cause a report.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& out) override {
    std::vector<ScalarColumn> norms;
    std::vector<const Norm*> places;
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = known_.Of(column.any(), [&] { return Find(column.any()); });
      if (known.norm == nullptr) continue;
      if (known.norm->second.series == nullptr) return 0;
      norms.push_back(column);
      places.push_back(known.norm);
    }
    const std::vector<ScalarColumn> policy = rows.Of([&](const SiteStep& any) {
      return known_.Of(any, [&] { return Find(any); }).kind != PolicyKind::kNone;
    });
    const std::vector<ScalarColumn> rates = rows.Of([&](const SiteStep& any) {
      return known_.Of(any, [&] { return Find(any); }).role == SeriesRole::kRate;
    });
    StepEnd step = rows.end;
    size_t row = first;
    for (bool any = false; row < rows.size() && !any; ++row) {
      step.step = rows.steps[row];
      rate_ = LargestOf(rates, row);
      Turn(step.role);
      for (const ScalarColumn& of : policy) {
        const SiteStep& any = of.any();
        const PolicyKind kind = known_.Of(any, [&] { return Find(any); }).kind;
        policies_[any.role].Take(kind, any.site.op(), step.step, of.value(row));
      }
      for (size_t i = 0; i < norms.size(); ++i)
        any |= Take(step, places[i]->first, norms[i].value(row), *places[i]->second.series, out);
    }
    rate_.reset();
    return row - first;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (auto& [key, series] : series_) {
      const Place place = PlaceOf(key);
      std::vector<SeriesEvent> events;
      series.detector.End(&events);
      Emit(key, events, series, out);
      if (series.reported) continue;
      v1::Verdict verdict = Rest(series);
      Put(*verdict.mutable_details(), "series", place.second);
      Put(*verdict.mutable_details(), "points", static_cast<double>(series.points));
      SetPlace(verdict, place.first, place.second, series.step_first, series.step_last,
               std::vector<uint32_t>{});
      out.Add(std::move(verdict));
    }
  }

  // open_ and rate_ are empty between steps. norms_, known_, games_ are found after a restore.
  void Persist(Archive& archive) override {
    archive.Version(6, 6);  // 5: stores only the written entries of rings; 6: spread of rewards
    archive(series_, turns_, policies_);
    if (!archive.reading()) return;
    norms_.clear();
    known_ = {};
  }

 private:
  using Place = std::pair<std::string, std::string>;           // layer, op
  using Key = std::tuple<v1::Role, std::string, std::string>;  // with the role
  // A norm's value in the open step, and its series once it exists.
  struct OpenNorm {
    std::optional<double> value;
    NormSeries* series = nullptr;
  };
  using Norm = std::map<Key, OpenNorm>::value_type;
  struct Known {
    SeriesRole role = SeriesRole::kNone;
    Norm* norm = nullptr;  // nullptr if the site is not a norm
    PolicyKind kind = PolicyKind::kNone;
  };

  // True for a loss of run.watch that belongs to one of several optimizers.
  static bool IsOfASide(std::string_view op) { return op.starts_with("partial_loss."); }

  Known Find(const SiteStep& step) {
    if (IsOfASide(step.site.op())) games_.insert(step.role);
    Known known{roles_.Of(step.site.op()), nullptr};
    known.kind = KindOfPolicyRow(step.site.op(), known.role);
    if (known.role != SeriesRole::kGradientNorm) return known;
    known.norm = &*norms_.try_emplace({step.role, step.site.layer(), step.site.op()}).first;
    return known;
  }

  // Takes the step's learning rate, if it is known.
  void Turn(v1::Role role) {
    if (!rate_ || !turns_[role].Take(*rate_)) return;
    for (auto& [key, series] : series_) {
      if (std::get<0>(key) == role) series.detector.RestartRate();
    }
  }

  // Returns true if the call may have reported something.
  bool Take(const StepEnd& step, const Key& key, double norm, NormSeries& series,
            VerdictSink& out) const {
    series.step_last = std::max(series.step_last, step.step);
    std::vector<SeriesEvent> events;
    const auto policy = policies_.find(std::get<0>(key));
    const bool judged = policy == policies_.end() || !policy->second.Lacks(step.step);
    if (judged || !std::isfinite(norm))
      series.detector.Take(step.attempt, step.step, norm, &events);
    if (!std::isfinite(norm)) {
      ++series.not_finite;
      return false;
    }
    ++series.points;
    series.ceiling.Take(norm);
    const bool any = !events.empty();
    if (any) Emit(key, events, series, out);
    series.standing.Take(step.step, norm);
    if (series.reported_explosion || !(norm > explosion_)) return any;
    const double stands = series.standing.at_least();
    if (!(stands > explosion_) || !(stands >= kTimesBefore * series.standing.lowest())) return any;
    series.reported = series.reported_explosion = true;
    out.Add(Explosion(step, PlaceOf(key), norm, series));
    return true;
  }

  static Place PlaceOf(const Key& key) { return {std::get<1>(key), std::get<2>(key)}; }

  void Emit(const Key& key, const std::vector<SeriesEvent>& events, NormSeries& series,
            VerdictSink& out) const {
    const bool game = games_.contains(std::get<0>(key));
    const bool policy = policies_.contains(std::get<0>(key));
    // A norm that rises back to the clip's limit is not a spike.
    if (series.ceiling.clips(series.points)) return;
    for (const SeriesEvent& event : events) {
      if (event.of_rise()) continue;
      const bool settled = event.what != SeriesEvent::What::kOpened;
      // A small excursion is reported only after it has ended.
      const bool warns = Warns(event.excursion, game) &&
                         !(policy && event.excursion.peak_value < series.standing.highest());
      if (!warns && !settled) continue;
      series.reported = true;
      out.Add(Spike(PlaceOf(key), event.excursion, warns));
    }
  }

  static FindingBuilder Begun(const Place& place, v1::Level level, int64_t onset, int64_t last,
                              const char* kind) {
    FindingBuilder found(level, v1::STRENGTH_STATISTICAL);
    found.FalseAlarm("measured", kFalseSpikes)
        .At(place.first, place.second, onset, std::max(onset, last), std::vector<uint32_t>{});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", place.second);
    Put(details, "step", static_cast<double>(onset));
    Put(details, "kind", kind);
    return found;
  }

  // Noise of a gradient norm is correlated over tens of steps, so 7 of 9 points may leave the level
  // by chance, and 16 points do not show the noise's size. A lasting excursion must therefore also
  // exceed all values before it. In healthy training norms rise to several times their level, but
  // slowly.
  static bool Warns(const Excursion& e, bool game) {
    return e.doubled() && !(game && e.peak_value < kTimesInAGame * e.value(e.level));
  }

  static v1::Verdict Spike(const Place& place, const Excursion& e, bool warns) {
    FindingBuilder found = Begun(place, warns ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, e.onset_step,
                                 e.last_step, NameOf(e.kind));
    found.Title(warns ? "the gradient norm jumped" : "the gradient norm left its level")
        .Explain(absl::StrFormat("%s left its level of %.4g in step %d and reached %.4g in step %d "
                                 "(%.3g scales above it); %s.",
                                 place.second, e.value(e.level), e.onset_step, e.peak_value,
                                 e.peak_step, e.peak_z(), OutcomeOf(e)))
        .Cause("gradient-jump", 0.8)
        .Measured("peak above the level", e.peak_z(), "scales")
        .Threshold(6, "as health/loss-spike, in ln")
        .Fix(
            "Clip the gradient norm, and log it before the clip. Check the batch of that step. "
            "Warm up longer, or lower the learning rate.")
        .Samples(e.window)
        .Witness("step", static_cast<double>(e.onset_step))
        .Witness("peak", e.peak_value)
        .Witness("level", e.value(e.level));
    return found.Take();
  }

  v1::Verdict Explosion(const StepEnd& step, const Place& place, double norm,
                        const NormSeries& series) const {
    const int64_t first = series.standing.First([&](double x) { return x > explosion_; });
    FindingBuilder found = Begun(place, v1::LEVEL_WARNING, first, step.step, "explosion");
    found.Title("the gradient norm explodes")
        .Explain(absl::StrFormat("%s was above %.3g in %d of its newest %d points, from step %d "
                                 "on; it is %.4g in step %d, and was %.4g before.",
                                 place.second, explosion_, Standing::kTen,
                                 series.standing.newest().size(), first, norm, step.step,
                                 series.standing.lowest()))
        .Cause("gradient-explosion", 0.9)
        .Measured("gradient norm", norm)
        .Threshold(explosion_, "option explosion, customary")
        .Fix(
            "Clip the gradient norm, lower the learning rate, and check the initialisation. In "
            "fp16, log the norm after unscale_.")
        .Samples(Standing::kTen)
        .Witness("step", static_cast<double>(first))
        .Witness("before", series.standing.lowest())
        .Witness("norm", norm);
    return found.Take();
  }

  v1::Verdict Rest(const NormSeries& series) const {
    if (series.points == 0 && series.not_finite > 0)
      return Inconclusive("no-number: every value is NaN or infinite");
    if (series.ceiling.clips(series.points))
      return Inconclusive(
          absl::StrFormat("clipped-after: %d of %d points are at the largest value, %.6g: the norm "
                          "was logged after the clip, so larger values are not visible",
                          series.ceiling.at, series.points, series.ceiling.value));
    if (series.points < kFewNorms)
      return Inconclusive(absl::StrCat("few-points: fewer than ", kFewNorms));
    if (series.standing.lowest() > explosion_)
      return Pass(
          absl::StrFormat("the norm stays at its level, which is above %.3g: the loss is a sum, or "
                          "gradients are still scaled",
                          explosion_));
    return Pass("the norm stays at its level");
  }

  const SeriesRoles roles_;  // stated by the user
  double explosion_;
  std::map<Key, OpenNorm> norms_;
  SiteMemo<Known> known_;
  std::vector<Norm*> open_;     // pointers into norms_: those of this step
  std::optional<double> rate_;  // of this step, the largest
  std::map<v1::Role, RateTurns> turns_;
  std::set<v1::Role> games_;                   // roles whose optimizers have separate losses
  std::map<v1::Role, PolicySpread> policies_;  // of roles that train a policy
  std::map<std::tuple<v1::Role, std::string, std::string>, NormSeries> series_;
};

}  // namespace

CatalogueEntry gradient_spike() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<GradientSpike>(options);
          }};
}

}  // namespace plumbline::rules
