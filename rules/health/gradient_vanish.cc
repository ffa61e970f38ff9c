#include <algorithm>
#include <cmath>
#include <cstdint>
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
#include "rules/bases/norm_context.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/gradient-vanish

The gradient's norm is so small that nothing is learned from it.

**Why.** Adam divides the gradient by its own size and 10^-8: a million gradients that have a norm of 10^-7 together are 10^-10 each, a hundredth of
that epsilon, and the step shrinks by a hundred. With plain SGD at a rate of 0.1 a step is 10^-8, below the last place
of any weight of 0.2 in fp32. Of
gradients of a few parts in a billion fp16 keeps none (its smallest number is 6e-8).

**Bad.** `grad_norm was below 1e-07 in 10 points in a row, from step 240 on; it is 3.1e-09 in step 249`

**Good.** Norms around 0.1 to 10, however much they fall at the start; a small problem whose loss is minimised with all data at once, down to 10^-9.

**How to fix it.**
- Exactly 0: the loss does not depend on the parameters (`detach()`, `no_grad`, a mask that hides all), or all units are dead (`health/all-zero`).
- Small: saturated softmax, sigmoid or tanh; no residual paths, no normalisation; an initialisation that is too small; a loss that is divided twice.
- In fp16: scale the loss (`torch.amp.GradScaler`), and log the norm after `unscale_`.
- A loss that is at its minimum has no gradient either: then end the run.

**What it checks.** Series whose role is a gradient norm (`grad_norm`, `train/gnorm`, ...; `run.watch` records `grad_norm`): below 10^-7 in ten of the
newest nineteen points. NaN and infinity do not count. In a policy's training (`reward`, `mismatch_kl`, ...) rows whose groups have no spread of rewards do not
count either (`reward_std` 0, `frac_reward_zero_std` 1, ...): they have no gradient. If no spread is recorded there, 50 in a row are needed.
The run shows what this means:
- 0 in all of them: nothing reaches the parameters, a warning.
- It was 1,000 times higher before: it vanished, a warning. If a training loss is also recorded, is at its lowest
  value, and fell by at least a tenth of
  its start value, the loss may be at its minimum, and there is no finding (not even for a norm of 0). This does not
  apply if the loss still differs from batch to batch, by more than
  a thousandth, at a level above a thousandth of what it began with: because the gradients of such batches would
  differ too. Where none is recorded, a norm that fell slowly, by
  less than 1,000 times within its newest points, is a note.
- It was never higher: the loss is divided by a large number. This is stated, but is not a finding.

A norm that is a customary clip (1, 0.5, ...) over a power of two of 256 or more, to five digits and in ten points in
a row, is a warning: the gradients are
clipped before a loss scale is taken from them, so each step has the norm clip / scale.

**Strength.** `heuristic`: 10^-7 is customary. That the norm was below it is as sure as the log.

**Inconclusive when** fewer than 10 finite points were recorded, the loss fell to its lowest value together with the norm (a minimum, or units that saturate there), or the norm is exactly 0 from the
first row on while the loss falls by a tenth: it is not computed. Next to a loss, such a norm is judged after 50 points or at the end.

**What it cannot see.** One layer's gradient that vanishes in the norm of all (`health/all-zero` where it is exactly 0); a norm that falls by
decades and stays above 10^-7.

**Cost.** Some 500 bytes a series.

**Sources.** Hochreiter, 1991; Pascanu et al., "On the Difficulty of Training Recurrent Neural Networks", 2013; SageMaker Debugger's rule
`VanishingGradient`, whose threshold is 10^-7 of the mean magnitude.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "norm",
     .type = OptionInfo::Type::kNumber,
     .unit = "gradient norm",
     .default_value = "1e-7",
     .reason = "customary: SageMaker Debugger's, which takes means of magnitudes",
     .low = 0,
     .high = 1e300},
};

constexpr RuleInfo kInfo = {"health/gradient-vanish",
                            "the gradient norm is vanishing",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr double kFalls = 1000;  // the norm falls to 1 / kFalls of its highest level
// Points of exactly 0 from the first one on, after which a loss that falls would show it.
constexpr uint64_t kZerosAlways = 50;

class GradientVanish : public ScalarRule {
 public:
  explicit GradientVanish(const Options& options)
      : roles_(options.roles()), norm_(options.Number("norm")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    const SeriesRole role = roles_.Of(site.op());
    return role == SeriesRole::kGradientNorm || role == SeriesRole::kLoss ||
           KindOfPolicyRow(site.op(), role) != PolicyKind::kNone;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    Known& known = KnownOf(step);
    if (known.role == SeriesRole::kLoss) return TakeLoss(step, known);
    if (ComparesEngine(known.role)) return TakePolicy(step, PolicyKind::kReward);
    if (IsOfPolicy(known.kind)) return TakePolicy(step, known.kind);
    if (known.role != SeriesRole::kGradientNorm) return;
    std::optional<double> norm;  // of the lowest rank with a finite value
    bool scalar = false;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      scalar = true;
      const double value = item.evidence->scalar().value();
      if (!norm && std::isfinite(value) && value >= 0) norm = value;
    }
    if (!scalar) return;
    if (known.norm == nullptr) {
      const auto [place, fresh] =
          series_.try_emplace({step.role, step.site.layer(), step.site.op()});
      known.norm = &place->second;
      if (fresh) known.norm->step_first = step.step;
    }
    SiteStep at;
    at.role = step.role, at.step = step.step, at.site = step.site;
    waiting_.push_back({std::move(at), known.norm, norm.value_or(NAN)});
  }

  bool judges_unseen_steps() const override { return false; }
  // The spread of rewards may be recorded after the norm, in the same step.
  void JudgeStep(const StepEnd& /*step*/, VerdictSink& out) override {
    for (const Waiting& one : std::exchange(waiting_, {})) {
      const auto of_role = policies_.find(one.at.role);
      const PolicyRows policy = of_role == policies_.end() ? PolicyRows{} : of_role->second;
      VanishingNorm& series = *one.series;
      if (policy.spreadless && one.norm < norm_) {
        ++series.spreadless;
        continue;
      }
      series.Take(one.at.step, one.norm);
      series.low = one.norm < norm_ ? series.low + 1 : 0;
      if (std::isnan(one.norm)) continue;
      const bool may_lack_spread = policy.policy && !policy.spread_known;
      if (!may_lack_spread || series.low >= PolicyRows::kFewest)
        Look(one.at, one.norm, series, out);
      LookForScale(one.at, series, out);
    }
  }

  const void* judges_apart() const override { return this; }
  // Takes rows of known series, up to a norm that may be too small.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    std::vector<Known> known;
    size_t taken = rows.size() - first;
    for (const ScalarColumn& column : rows.columns) {
      const Known& of = known.emplace_back(KnownOf(column.any()));
      if (of.norm == nullptr && of.loss == nullptr) return 0;  // also for series of a policy
      if (of.norm == nullptr || of.norm->reported) continue;
      size_t i = 0;
      // The norm after a clip of scaled gradients must be judged, too.
      const double low = of.norm->scaled ? norm_ : std::max(norm_, kClippedScaledMost);
      while (i < taken && !(column.value(first + i) < low)) ++i;
      taken = i;
    }
    for (size_t row = first; row < first + taken; ++row) {
      for (size_t i = 0; i < known.size(); ++i) {
        const double value = rows.columns[i].value(row);
        if (known[i].loss != nullptr) {
          known[i].loss->Take(value);
        } else {
          known[i].norm->Take(rows.steps[row], value);
          known[i].norm->low = value < norm_ ? known[i].norm->low + 1 : 0;
        }
      }
    }
    return taken;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, series] : series_) {
      if (series.reported || series.scaled) continue;
      const OtherLoss* loss = Adjacent(std::get<0>(key));
      const bool learns = series.always_zero() && loss != nullptr && loss->fell();
      if (series.always_zero() && loss != nullptr && !learns && !loss->at_its_minimum()) {
        SiteStep at;
        at.role = std::get<0>(key), at.step = series.step_last;
        at.site.set_layer(std::get<1>(key)), at.site.set_op(std::get<2>(key));
        out.Add(Found(at, 0, series, true));
        continue;
      }
      v1::Verdict verdict =
          learns ? Inconclusive("not-computed: the norm is 0 in each row, and the loss falls")
                 : Rest(series);
      Put(*verdict.mutable_details(), "series", std::get<2>(key));
      Put(*verdict.mutable_details(), "points", static_cast<double>(series.points));
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), series.step_first, series.step_last,
               std::vector<uint32_t>{});
      out.Add(std::move(verdict));
    }
  }

  // known_ is recomputed after a restore. waiting_ belongs to one step.
  void Persist(Archive& archive) override {
    archive.Version(4, 4);  // 4: rows of a policy
    archive(series_, losses_, policies_);
    if (archive.reading()) known_ = {};
  }

 private:
  // Cached facts of a site; recomputed after a restore.
  struct Known {
    SeriesRole role = SeriesRole::kNone;
    PolicyKind kind = PolicyKind::kNone;
    VanishingNorm* norm = nullptr;  // set when the norm exists
    OtherLoss* loss = nullptr;
  };

  Known& KnownOf(const SiteStep& step) {
    return known_.Of(step, [&] {
      const SeriesRole role = roles_.Of(step.site.op());
      return Known{role, PolicyMetricOf(step.site.op(), role).kind};
    });
  }

  void TakePolicy(const SiteStep& step, PolicyKind kind) {
    for (const Item& item : step.items) {
      if (item.evidence->has_scalar())
        policies_[step.role].Take(kind, step.step, item.evidence->scalar().value());
    }
  }

  // Takes the value of the lowest rank that reports one.
  void TakeLoss(const SiteStep& step, Known& known) {
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      if (known.loss == nullptr) known.loss = &losses_[{step.role, step.site.op()}];
      known.loss->Take(item.evidence->scalar().value());
      return;
    }
  }

  // Returns a known loss of the same processes, if possible one at its minimum; else nullptr.
  const OtherLoss* Adjacent(v1::Role role) const {
    const OtherLoss* found = nullptr;
    for (const auto& [key, loss] : losses_) {
      if (key.first != role || !loss.known()) continue;
      if (found == nullptr || loss.at_its_minimum()) found = &loss;
    }
    return found;
  }

  void LookForScale(const SiteStep& step, VanishingNorm& series, VerdictSink& out) const {
    const double norm = series.scaled ? 0 : series.constant();
    const double scale = norm > 0 ? ScaleUnderClip(norm) : 0;
    if (scale == 0) return;
    series.scaled = true;
    const int64_t first = (series.standing.newest().end() - Standing::kTen)->step;
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("gradients are clipped before they are unscaled")
        .Explain(absl::StrFormat(
            "%s is %.6g in %d points in a row, steps %d to %d: a clip at %g divided by a loss "
            "scale of %.0f. The gradients are clipped before they are unscaled, so each step has "
            "this norm.",
            step.site.op(), norm, Standing::kTen, first, step.step, norm * scale, scale))
        .Cause("clip-before-unscale", 0.9)
        .Measured("gradient norm", norm)
        .Threshold(kSameNormDigits, "five equal digits: a customary clip divided by a power of two")
        .Fix("Unscale before the clip: scaler.unscale_(optimizer), then clip_grad_norm_.")
        .Samples(Standing::kTen)
        .Witness("norm", norm)
        .Witness("scale", scale)
        .At(step.site.layer(), step.site.op(), first, step.step, std::vector<uint32_t>{});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", step.site.op());
    Put(details, "step", static_cast<double>(first));
    Put(details, "kind", "clip-before-unscale");
    out.Add(found.Take());
  }

  void Look(const SiteStep& step, double norm, VanishingNorm& series, VerdictSink& out) const {
    const Standing& stands = series.standing;
    if (series.reported || !(norm < norm_) || !(stands.at_most() < norm_)) return;
    const bool zero = stands.at_most() == 0;
    // The norm must have been much higher before.
    if (!zero && !(stands.highest() >= kFalls * stands.at_most())) return;
    const OtherLoss* loss = Adjacent(step.role);
    // While no loss shows whether the model learns, a norm that was always 0 may not be computed.
    if (series.always_zero() && loss != nullptr && (loss->fell() || series.points < kZerosAlways))
      return;
    series.minimum = loss != nullptr && loss->at_its_minimum();
    if (series.minimum) return;
    series.reported = true;
    const bool sudden = stands.newest_highest() >= kFalls * stands.at_most();
    out.Add(Found(step, norm, series, zero || sudden || loss != nullptr));
  }

  v1::Verdict Found(const SiteStep& step, double norm, const VanishingNorm& series,
                    bool warns) const {
    const Standing& stands = series.standing;
    const bool zero = stands.at_most() == 0;
    const int64_t first = stands.First([&](double x) { return x < norm_; });
    FindingBuilder found(warns ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title(zero ? "the gradient norm is zero" : "the gradient norm is vanishing")
        .Explain(absl::StrFormat(
            "%s was below %.3g in %d of its newest %d points, from step %d on; it is %.4g in step "
            "%d%s.",
            step.site.op(), norm_, Standing::kTen, stands.newest().size(), first, norm, step.step,
            stands.highest() > norm_ ? absl::StrFormat(", and was %.3g before", stands.highest())
                                     : ""))
        .Cause(zero ? "no-gradient" : "gradient-vanishes", 0.7)
        .Measured("gradient norm", norm)
        .Threshold(norm_, "option norm, customary; and a thousandth of its earlier level")
        .Fix(FixOf(step.role))
        .Samples(Standing::kTen)
        .Witness("step", static_cast<double>(first))
        .Witness("norm", norm)
        .At(step.site.layer(), step.site.op(), first, step.step, std::vector<uint32_t>{});
    if (Adjacent(step.role) == nullptr)
      found.Assume("the loss is not at its minimum (no loss is recorded with the norm)");
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", step.site.op());
    Put(details, "step", static_cast<double>(first));
    Put(details, "kind", zero ? "zero" : "vanishing");
    return found.Take();
  }

  const char* FixOf(v1::Role role) const {
    const auto policy = policies_.find(role);
    if (policy != policies_.end() && policy->second.policy && !policy->second.spread_known)
      return "Look whether the rewards within each group differ: equal rewards give a gradient of "
             "0. Else follow the graph from the loss (detach, masks).";
    return "Follow the graph from the loss (detach, masks, dead units), check saturation and the "
           "initialisation. In fp16, scale the loss.";
  }

  v1::Verdict Rest(const VanishingNorm& series) const {
    if (series.points < Standing::kTen && series.spreadless > 0)
      return Inconclusive("no-spread: the rewards within each group are equal in most rows");
    if (series.points < Standing::kTen)
      return Inconclusive(absl::StrCat("few-points: fewer than ", Standing::kTen, " are finite"));
    if (series.minimum)
      return Inconclusive(
          "minimum: the loss fell to its lowest value together with the norm, so it may be at its "
          "minimum");
    if (series.standing.highest() < norm_ && series.standing.newest_highest() >= norm_)
      return Inconclusive(absl::StrCat("few-points: fewer than ", Standing::kTen,
                                       " finite ones are on one side of the limit"));
    if (series.standing.highest() < norm_)
      return Pass(absl::StrFormat(
          "the norm stays at its level, which is below %.3g: the loss is divided by a large number",
          norm_));
    return Pass("the norm did not vanish");
  }

  const SeriesRoles roles_;  // stated by the user
  double norm_;
  std::map<std::tuple<v1::Role, std::string, std::string>, VanishingNorm> series_;
  std::map<std::pair<v1::Role, std::string>, OtherLoss> losses_;
  std::map<v1::Role, PolicyRows> policies_;
  struct Waiting {
    SiteStep at;  // without items
    VanishingNorm* series = nullptr;
    double norm = NAN;
  };
  std::vector<Waiting> waiting_;  // norms of the current step
  SiteMemo<Known> known_;
};

}  // namespace

CatalogueEntry gradient_vanish() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<GradientVanish>(options);
          }};
}

}  // namespace plumbline::rules
