#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "analysis/weights/weights.h"
#include "base/half.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/epsilon-underflow

The epsilon that keeps a denominator from being zero is zero in its dtype, or the second moment has
underflowed, so that the denominator is epsilon alone.

**Why.** The smallest positive fp16 is 6e-8: the customary 1e-8 is 0 there, and so is every g² below
3e-8/(1−β2), that is |g| < 5.4e-3 at β2 = 0.999. Then m/(sqrt(0) + 0) is infinite; with eps in fp32 it is
1e8·m: for a gradient of 1e-4 the root should be 3.2e-6 and is replaced by 1e-8, a first step 316 times too
long, in the elements with the least signal.

**Bad.** `eps = 1e-08 is 0 in f16`.

**Good.** Moments and the division in fp32 or bf16; or eps = 1e-4 in fp16, chosen to be there.

**How to fix it.**
- Step fp32 masters: `torch.autocast` with `GradScaler` over an fp32 model instead of `model.half()`; Apex O2;
  DeepSpeed `fp16: {enabled: true}` without `fp16_master_weights_and_gradients`; Megatron-LM
  `--exp-avg-sq-dtype fp32`.
- Pure fp16 or 8-bit state: raise eps (`torch.optim.Adam(eps=1e-4)`) and know that it then bounds the step.
- Norms in fp16: an eps of 1e-5 is above 0, but 1e-8 and BERT's 1e-12 are 0; compute norms in fp32.

**What it checks.** Two things, each enough. (1) `eps`, rounded once to the dtype in which it is added
(`eps_dtype`, else the dtype of the moments), is 0. (2) A sampled element has v = 0 after a step with g ≠ 0,
because β2·v + (1−β2)·g² rounds to 0 in the moments' dtype, although its root is larger than eps: the
denominator is eps where it should be sqrt(v) + eps.

**In checkpoints** eps and the decays are those of the parameter's group. (1) is as above, unless weights whose v is 0 are finite: then eps is
added in a wider dtype. (2) of 2,048 sampled elements: v = 0 where the first moment m is not. Both average the same gradients, so
sqrt(v) ≥ |m|·sqrt((1−β2)(1−β1²/β2))/(1−β1), 0.138 |m| at 0.9 and 0.999 (Cauchy and Schwarz); where that is above eps the denominator has
lost it. The share of v below eps² is in the details alone.

**Strength.** `proved`: one rounding.

**Inconclusive when** eps was not recorded, no dtype is known in which it is added, the moments are 8-bit
(they are widened before they are used), or all gradients of the step that are not zero are NaN or infinite.

**Reasons.** `eps-unknown`: the update does not contain its eps; `dtype-unknown`: neither `eps_dtype` nor the moments
show the dtype in which eps is added; `8-bit-moments`: moments in 8 bits are widened before eps is added;
`eps-elsewhere`: weights with a moment of 0 are finite, so eps is added in a wider dtype; `poisoned`: gradients or
moments are NaN or infinite.

**What it cannot see.** An optimizer that stores fp16 moments and adds eps in fp32: declare `eps_dtype`. Where
elements with v = 0 have a finite step, the rule takes it that eps was not 0.

**Cost.** A few comparisons.

**Sources.** PyTorch issue "Adam + half precision = NaNs"; Micikevicius et al., "Mixed Precision Training", 2018.
)page";

constexpr RuleInfo kInfo = {"precision/epsilon-underflow",
                            "epsilon is zero in its dtype",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

bool Byte(DType t) { return DTypeSize(t) == 1; }

// Sampled elements with v = 0 after a step with g != 0.
struct Bare {
  size_t elements = 0;
  size_t reported = 0;      // elements in which g is finite and not zero
  size_t poisoned = 0;      // g is not finite
  size_t finite_steps = 0;  // elements with v = 0 whose intended change and result are finite
  size_t flushed = 0;       // v rounds to 0 although its root is above eps
  size_t worst = 0;         // index of the flushed element with the largest root
  double worst_root = 0;
};

Bare LookAtMoments(const UpdateCase& c, double beta2, double eps) {
  // If beta2 is not declared, assume the longest memory in use, which gives the gradient the
  // smallest weight.
  const double rest = beta2 > 0 && beta2 < 1 ? 1 - beta2 : 1e-4;
  Bare bare;
  if (c.gradient.empty() || c.moment_after.empty()) return bare;
  for (size_t i = 0; i < c.size(); ++i) {
    const double g = c.gradient[i];
    bare.poisoned += std::isfinite(g) ? 0 : 1;
    bare.reported += std::isfinite(g) && g != 0 ? 1 : 0;
    if (!(c.moment_after[i] == 0) || !std::isfinite(g) || g == 0) continue;
    ++bare.elements;
    if (std::isfinite(c.intended[i]) && std::isfinite(c.after[i])) ++bare.finite_steps;
    const double before = c.moment_before.empty() ? 0 : c.moment_before[i];
    if (!(before >= 0) || !std::isfinite(before)) continue;
    const double v = (1 - rest) * before + rest * g * g;
    // Tests both orders of rounding. If v stayed 0 but neither order gives 0, the step was skipped.
    const bool rounds_away = RoundToFormat(v, c.moment_dtype) == 0 ||
                             (before == 0 && RoundToFormat(g * g, c.moment_dtype) == 0);
    if (!rounds_away || !(std::sqrt(v) > eps)) continue;
    ++bare.flushed;
    if (std::sqrt(v) > bare.worst_root) {
      bare.worst_root = std::sqrt(v);
      bare.worst = i;
    }
  }
  return bare;
}

class EpsilonUnderflow : public ScalarRule {
 public:
  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    JudgeItems(
        step, [&](const Item& item) { return JudgeOne(item); }, out);
    if (!step.late) held_.Take(step);
  }

  bool ReadsScalar(const v1::Site& site) const override { return HeldMoments::ReadsScalar(site); }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override { held_.Close(step, out); }

  // Each step is judged independently; between steps held_ is empty.
  void Persist(Archive& /*archive*/) override {}

 private:
  static std::optional<v1::Verdict> JudgeOne(const Item& item) {
    if (!item.evidence->has_update()) return std::nullopt;
    const v1::Update& update = item.evidence->update();
    const v1::UpdateConfig& config = update.config();
    const auto c = DecodeUpdate(update);
    auto moments = static_cast<DType>(config.moment_dtype());
    if (c.ok() && c->moment_dtype != DType::kUnspecified) moments = c->moment_dtype;
    const bool known_moments = IsFloating(moments);
    const bool stated = std::isfinite(config.eps()) && config.eps() > 0;
    if (!stated) {
      if (!known_moments) return std::nullopt;
      return Inconclusive("eps-unknown: the update does not contain its eps");
    }
    const bool declared = IsFloating(static_cast<DType>(config.eps_dtype()));
    const DType dtype = declared ? static_cast<DType>(config.eps_dtype()) : moments;
    if (!IsFloating(dtype)) {
      return Inconclusive(
          "dtype-unknown: neither eps_dtype nor the moments show the dtype in which eps is added");
    }
    const Bare bare = c.ok() ? LookAtMoments(*c, config.beta2(), config.eps()) : Bare{};
    const bool zero = RoundToFormat(config.eps(), dtype) == 0;
    if (zero && (declared || (!Byte(dtype) && bare.finite_steps == 0)))
      return CastFinding(config, dtype, declared, bare, c.ok() ? &*c : nullptr);
    if (bare.flushed > 0 && !Byte(c->moment_dtype)) return FlushFinding(config, *c, bare);
    if (!declared && Byte(dtype)) {
      return Inconclusive("8-bit-moments: they are widened before eps is added; declare eps_dtype",
                          Describe(config, dtype, bare));
    }
    if (Poisoned(update, bare)) {
      return Inconclusive("poisoned: gradients are NaN or infinite, and no other evidence exists",
                          Describe(config, dtype, bare));
    }
    return Pass("eps is not zero in the dtype of the addition", Describe(config, dtype, bare));
  }

  // Returns true if no element shows the step's effect on its moments.
  static bool Poisoned(const v1::Update& update, const Bare& bare) {
    if (bare.reported > 0) return false;
    return bare.poisoned > 0 || (!update.has_sample() && update.summary().non_finite() > 0);
  }

  static v1::Verdict CastFinding(const v1::UpdateConfig& config, DType dtype, bool declared,
                                 const Bare& bare, const UpdateCase* c) {
    const FloatFormat format = FormatOf(dtype);
    const double least = PowerOfTwo(format.min_exponent - format.precision + 1);
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("eps = %g is 0 in %s", config.eps(), DTypeName(dtype)))
        .Explain(absl::StrFormat(
            "The smallest positive %s is %.3g, so eps rounds to 0. The denominator sqrt(v) + eps "
            "is 0 where v is 0.%s",
            DTypeName(dtype), least,
            bare.elements == 0
                ? ""
                : absl::StrFormat(" %d sampled elements have v = 0 and g != 0.", bare.elements)))
        .Cause("eps-rounds-to-zero", 1)
        .Measured("eps as added", 0, "")
        .Threshold(least, absl::StrCat("smallest positive ", DTypeName(dtype)))
        .Fix(
            "Add eps in fp32 (fp32 masters and moments), or choose an eps that the dtype can "
            "represent (1e-4 in fp16).")
        .Witness("eps", config.eps());
    if (c != nullptr) found.Samples(c->size());
    if (!declared) {
      found.verdict().add_assumptions(absl::StrCat("eps is added in the moments' dtype, ",
                                                   DTypeName(dtype),
                                                   "; set eps_dtype if this is wrong"));
    }
    *found.verdict().mutable_details() = Describe(config, dtype, bare);
    return found.Take();
  }

  static v1::Verdict FlushFinding(const v1::UpdateConfig& config, const UpdateCase& c,
                                  const Bare& bare) {
    const double factor = (bare.worst_root + config.eps()) / config.eps();
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("the second moment underflows in %s", DTypeName(c.moment_dtype)))
        .Explain(absl::StrFormat("%d sampled elements have v = 0 after a step with g != 0: the "
                                 "exact v rounds to 0 in %s, so the denominator is only eps = %g. "
                                 "The worst denominator is %.3g times too small.",
                                 bare.flushed, DTypeName(c.moment_dtype), config.eps(), factor))
        .Cause("moment-underflow", 1)
        .Measured("elements whose denominator is only eps", static_cast<double>(bare.flushed),
                  "elements")
        .Threshold(0, "a sqrt(v) above eps must be part of the denominator")
        .Fix(
            "Keep the second moment in fp32 or bf16 (Megatron-LM --exp-avg-sq-dtype fp32), or "
            "raise eps to the square root of its smallest value.")
        .Samples(c.size())
        .Witness("element",
                 absl::StrFormat("[%d]: g = %.9g, v = 0, sqrt of the exact v = %.6g, eps = %g",
                                 c.offsets[bare.worst], c.gradient[bare.worst], bare.worst_root,
                                 config.eps()));
    if (!(config.beta2() > 0 && config.beta2() < 1))
      found.verdict().add_assumptions("beta2 was not recorded; it is at most 0.9999");
    *found.verdict().mutable_details() = Describe(config, c.moment_dtype, bare);
    return found.Take();
  }

  static google::protobuf::Struct Describe(const v1::UpdateConfig& config, DType dtype,
                                           const Bare& bare) {
    google::protobuf::Struct details;
    Put(details, "eps", config.eps());
    Put(details, "eps_dtype", DTypeName(dtype));
    Put(details, "eps_as_added", RoundToFormat(config.eps(), dtype));
    Put(details, "zero_moments", static_cast<double>(bare.elements));
    Put(details, "underflowed_moments", static_cast<double>(bare.flushed));
    if (bare.poisoned > 0) Put(details, "poisoned", static_cast<double>(bare.poisoned));
    return details;
  }

  HeldMoments held_;  // moments in checkpoints; empty between steps
};

}  // namespace

CatalogueEntry epsilon_underflow() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<EpsilonUnderflow>();
          }};
}

}  // namespace plumbline::rules
