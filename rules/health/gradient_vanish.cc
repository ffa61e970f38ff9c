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
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/gradient-vanish

The gradient's norm is so small that nothing is learned from it.

**Why.** Adam divides the gradient by its own size and 10^-8: a million gradients that have a norm of 10^-7 together are 10^-10 each, a hundredth of
that epsilon, and the step shrinks by a hundred. With plain SGD at a rate of 0.1 a step is 10^-8, below the last place of any weight of 0.2 in fp32. Of
gradients of a few parts in a billion fp16 keeps none (its smallest number is 6e-8).

**What it checks.** Series whose role is a gradient norm (`grad_norm`, `train/gnorm`, ...; `run.watch` tells `grad_norm`): below 10^-7 in 10 points in a
row, zero included. NaN and infinity neither count nor end a row.

**Bad.** `grad_norm was below 1e-07 in 10 points in a row, from step 240 on; it is 3.1e-09 in step 249`

**Good.** Norms around 0.1 to 10, however much they fall at the start.

**How to fix it.**
- Exactly 0: the loss does not depend on the parameters (`detach()`, `no_grad`, a mask that hides all), or all units are dead (`health/all-zero`).
- Small: saturated softmax, sigmoid or tanh; no residual paths, no normalisation; an initialisation that is too small; a loss that is divided twice.
- In fp16: scale the loss (`torch.amp.GradScaler`), and log the norm behind `unscale_`.
- A loss that is at its minimum has no gradient either: then end the run.

**Strength.** `heuristic`: 10^-7 is customary. That the norm was below it is as sure as the log.

**Inconclusive when** fewer than 10 points were told that are numbers.

**What it cannot see.** One layer's gradient that vanishes in the norm of all (`health/all-zero` where it is exactly 0); a norm that falls by
decades and stays above 10^-7.

**Cost.** Some 50 bytes a series.

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

constexpr uint64_t kVanishes = 10;  // points in a row

struct VanishingNorm {
  uint64_t points = 0;
  uint64_t small = 0;  // in a row
  uint64_t zeros = 0;  // of them
  int64_t first = 0;
  bool told = false;
  int64_t step_first = 0, step_last = 0;
  void Persist(Archive& a) { a(points, small, zeros, first, told, step_first, step_last); }
};

class GradientVanish : public Rule {
 public:
  explicit GradientVanish(const Options& options)
      : roles_(options.roles()), norm_(options.Number("norm")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return roles_.Of(site.op()) == SeriesRole::kGradientNorm;
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (roles_.Of(step.site.op()) != SeriesRole::kGradientNorm) return;
    std::optional<double> norm;  // the lowest rank's that has a number
    bool scalar = false;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      scalar = true;
      const double value = item.evidence->scalar().value();
      if (!norm && std::isfinite(value) && value >= 0) norm = value;
    }
    if (!scalar) return;
    const auto [place, fresh] = series_.try_emplace({step.role, step.site.layer(), step.site.op()});
    VanishingNorm& series = place->second;
    if (fresh) series.step_first = step.step;
    series.step_last = std::max(series.step_last, step.step);
    if (norm) Take(step, *norm, series, out);
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, series] : series_) {
      if (series.told) continue;
      v1::Verdict verdict =
          series.points < kVanishes
              ? Inconclusive(absl::StrCat("few-points: fewer than ", kVanishes, " are numbers"))
              : Pass("the norm did not vanish");
      Put(*verdict.mutable_details(), "series", std::get<2>(key));
      Put(*verdict.mutable_details(), "points", static_cast<double>(series.points));
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), series.step_first, series.step_last,
               std::vector<uint32_t>{});
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(series_);
  }

 private:
  void Take(const SiteStep& step, double norm, VanishingNorm& series, VerdictSink& out) const {
    ++series.points;
    if (!(norm < norm_)) {
      series.small = series.zeros = 0;
      return;
    }
    if (series.small++ == 0) series.first = step.step;
    series.zeros += norm == 0 ? 1 : 0;
    if (series.small < kVanishes || series.told) return;
    series.told = true;
    out.Add(Found(step, norm, series));
  }

  v1::Verdict Found(const SiteStep& step, double norm, const VanishingNorm& series) const {
    const bool zero = series.zeros == series.small;
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title(zero ? "the gradient norm is zero" : "the gradient norm is vanishing")
        .Explain(absl::StrFormat("%s was below %.3g in %d points in a row, from step %d on; it is "
                                 "%.4g in step %d.",
                                 step.site.op(), norm_, series.small, series.first, norm,
                                 step.step))
        .Cause(zero ? "no-gradient" : "gradient-vanishes", 0.7)
        .Measured("gradient norm", norm)
        .Threshold(norm_, "option norm, customary")
        .Fix(
            "Follow the graph from the loss (detach, masks, dead units), look for saturation and "
            "the initialisation; in fp16 scale the loss.")
        .Samples(series.small)
        .Witness("step", static_cast<double>(series.first))
        .Witness("norm", norm)
        .At(step.site.layer(), step.site.op(), series.first, step.step, std::vector<uint32_t>{});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", step.site.op());
    Put(details, "step", static_cast<double>(series.first));
    Put(details, "kind", zero ? "zero" : "vanishing");
    return found.Take();
  }

  const SeriesRoles roles_;  // what the user said
  double norm_;
  std::map<std::tuple<v1::Role, std::string, std::string>, VanishingNorm> series_;
};

}  // namespace

CatalogueEntry gradient_vanish() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<GradientVanish>(options);
          }};
}

}  // namespace plumbline::rules
