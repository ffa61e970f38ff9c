#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/half.h"
#include "rules/catalogue.h"
#include "rules/lib/item_verdicts.h"
#include "rules/lib/sample_values.h"
#include "rules/lib/update_window.h"
#include "rules/lib/verdicts.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/moment-ratchet

Adam's second moment can rise and cannot fall: its decay is below half the spacing of its dtype.

**What it checks.** The sampled elements of an update with its gradient and the second moment before
and after: v ← β2·v + (1−β2)·g². Where g² < v, v must fall. A finding needs at least 1,000 such elements, of
which less than 1 % fell, and a replay that gives the recorded bits: the update is computed for each of them in the
ways optimizers compute it (fused and rounded once; β2·v rounded first, as a multiply and then an add do;
each product rounded), in double and in fp32, and one way must explain 99 % of those that stood still.

**Why.** With β2 = 0.999 the largest decay is 0.1 % of v; bf16 rounds away anything below 0.2 to 0.4 %. So v goes
up with every large gradient and never comes down: from 0, with normal gradients of variance one, it stands at
2.5 after 30,000 steps (fused; 4.0 when .999·v is rounded first), and higher the longer it runs. The step is
1/sqrt(v): a learning rate that decays by itself, 37 % down and 50 % down, and never recovers after a spike.

**Bad.** `0 of 2,793 elements fell where g² < v; bf16, β2 = 0.999`.

**Good.** v in fp32; or in bf16 with β2 = 0.95, where the decay is 5 %.

**How to fix it.**
- Keep the state in fp32: PyTorch allocates it in the parameters' dtype, so step fp32 masters; Transformer
  Engine `FusedAdam(exp_avg_sq_dtype=torch.float32)`; Megatron-LM `--exp-avg-sq-dtype fp32`; DeepSpeed: leave
  `fp16_master_weights_and_gradients` off.
- Or quantise with a scale and stochastic rounding (torchao, bitsandbytes 8-bit Adam), or lower β2.

**Strength.** `proved`: each listed element is replayed to the bit.

**Inconclusive when** there are fewer than 1,000 elements with g² < v, the gradient was not recorded, the
moments did not move at all as in a skipped step (the replay disagrees), or the optimizer is AMSGrad, whose
maximum never falls by design.

**What it cannot see.** A first moment that stalls (β1 = 0.9 decays by 10 %, which every dtype shows); a
gradient that was scaled or clipped after it was recorded, where that changes the replay.

**Cost.** A replay of at most 4,096 elements on sampled steps.

**Sources.** Kingma and Ba, "Adam", 2015; Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "elements",
     .type = OptionInfo::Type::kInteger,
     .unit = "elements",
     .default_value = "1000",
     .reason = "fewer tell little about a tensor",
     .low = 16,
     .high = 1e9},
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of elements that fell",
     .default_value = "0.01",
     .reason = "all of them should",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {"precision/moment-ratchet",
                            "a second moment cannot decay",
                            v1::LEVEL_WARNING,
                            RuleStatus::kBuilt,
                            "0.1.0",
                            kPage,
                            kOptions};

// Ways to compute the update; T: double or float, the type of the arithmetic before rounding.
struct Arithmetic {
  const char* name;
  double (*next)(double v, double g, double beta2, DType t);
};

template <typename T>
double Fused(double v, double g, double beta2, DType t) {
  const T b = static_cast<T>(beta2), rest = static_cast<T>(1 - beta2);
  const T x = static_cast<T>(g);
  return RoundToFormat(static_cast<double>(b * static_cast<T>(v) + rest * x * x), t);
}

template <typename T>
double MultiplyThenAdd(double v, double g, double beta2, DType t) {
  const T rest = static_cast<T>(1 - beta2), x = static_cast<T>(g);
  const double kept =
      RoundToFormat(static_cast<double>(static_cast<T>(beta2) * static_cast<T>(v)), t);
  return RoundToFormat(static_cast<double>(static_cast<T>(kept) + rest * x * x), t);
}

double EachRounded(double v, double g, double beta2, DType t) {
  const double kept = RoundToFormat(beta2 * v, t);
  const double added = RoundToFormat((1 - beta2) * RoundToFormat(g * g, t), t);
  return RoundToFormat(kept + added, t);
}

constexpr Arithmetic kArithmetics[] = {
    {"fused", Fused<double>},
    {"fused in fp32", Fused<float>},
    {"multiply, then add", MultiplyThenAdd<double>},
    {"multiply, then add in fp32", MultiplyThenAdd<float>},
    {"each product rounded", EachRounded},
};

// Tried where the decay is not said.
constexpr std::array kCustomary = {0.999, 0.99, 0.95, 0.98, 0.995, 0.9999, 0.9};
constexpr double kExplained = 0.99;

// Elements whose moment must fall.
struct Falling {
  std::vector<size_t> still;  // it did not
  size_t all = 0;
  size_t non_finite = 0;
};

Falling Look(const UpdateCase& c) {
  Falling f;
  for (size_t i = 0; i < c.size(); ++i) {
    const double v = c.moment_before[i], after = c.moment_after[i], g = c.gradient[i];
    if (!std::isfinite(v) || !std::isfinite(after) || !std::isfinite(g)) {
      ++f.non_finite;
      continue;
    }
    if (!(g * g < v)) continue;
    ++f.all;
    if (!(after < v)) f.still.push_back(i);
  }
  return f;
}

struct Replay {
  const char* name = "";
  double beta2 = 0;
  size_t explained = 0;  // of those that stood still
  size_t all = 0;        // of all: tells ways apart that agree on those
};

Replay BestReplay(const UpdateCase& c, const Falling& f, double beta2) {
  std::vector<double> betas = {beta2};
  if (!(beta2 > 0 && beta2 < 1)) betas.assign(kCustomary.begin(), kCustomary.end());
  Replay best;
  for (const double b : betas) {
    for (const Arithmetic& a : kArithmetics) {
      const auto gives = [&](size_t i) {
        return a.next(c.moment_before[i], c.gradient[i], b, c.moment_dtype) == c.moment_after[i];
      };
      Replay r{a.name, b, 0, 0};
      for (const size_t i : f.still) r.explained += gives(i) ? 1 : 0;
      for (size_t i = 0; i < c.size(); ++i) r.all += gives(i) ? 1 : 0;
      if (std::tie(r.explained, r.all) > std::tie(best.explained, best.all)) best = r;
    }
  }
  return best;
}

class MomentRatchet : public Rule {
 public:
  explicit MomentRatchet(const Options& options)
      : elements_(static_cast<size_t>(options.Integer("elements"))),
        share_(options.Number("share")) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    JudgeItems(
        step, [&](const Item& item) { return JudgeOne(step, item); }, out);
  }

 private:
  std::optional<v1::Verdict> JudgeOne(const SiteStep& step, const Item& item) {
    if (!item.evidence->has_update()) return std::nullopt;
    const v1::Update& update = item.evidence->update();
    if (IsAverage(update.config()) || IsAccumulation(update.config())) return std::nullopt;
    if (update.config().moment_dtype() == v1::DTYPE_UNSPECIFIED &&
        !update.sample().has_moment_after()) {
      return std::nullopt;
    }
    auto c = DecodeUpdate(update);
    if (!c.ok()) return Inconclusive(std::string(c.status().message()));
    if (c->gradient.empty() || c->moment_before.empty() || c->moment_after.empty()) {
      return Inconclusive(
          "not-recorded: the gradient and the second moment before and after are needed");
    }
    const UpdateWindow::Gathered& gathered = window_.Add(step, item, *std::move(c));
    const Falling f = Look(gathered.sample);
    if (f.all < elements_) {
      return Inconclusive(absl::StrCat("few-elements: fewer than ", elements_,
                                       " sampled elements have g^2 below their moment"),
                          Describe(gathered.sample, f));
    }
    v1::Verdict verdict = Weigh(update.config(), gathered.sample, f);
    verdict.mutable_site()->set_step_first(gathered.step_first);
    verdict.mutable_site()->set_step_last(step.step);
    window_.Forget(step, item);
    return verdict;
  }

  v1::Verdict Weigh(const v1::UpdateConfig& config, const UpdateCase& c, const Falling& f) const {
    const size_t fell = f.all - f.still.size();
    if (!(static_cast<double>(fell) < share_ * static_cast<double>(f.all)))
      return Pass("the second moment falls where its gradient is small", Describe(c, f));
    if (config.optimizer() == "amsgrad") {
      return Inconclusive("amsgrad: its maximum does not fall by design", Describe(c, f));
    }
    const Replay replay = BestReplay(c, f, config.beta2());
    if (static_cast<double>(replay.explained) < kExplained * static_cast<double>(f.still.size())) {
      return Inconclusive(
          "not-rounding: no replay of the update gives the recorded moments (a skipped step, or a "
          "gradient that is not the optimizer's)",
          Describe(c, f));
    }
    return Found(config, c, f, replay);
  }

  v1::Verdict Found(const v1::UpdateConfig& config, const UpdateCase& c, const Falling& f,
                    const Replay& replay) const {
    const size_t fell = f.all - f.still.size();
    v1::Verdict verdict = MakeFinding(
        {.level = v1::LEVEL_WARNING,
         .strength = v1::STRENGTH_PROVED,
         .title =
             absl::StrFormat("the second moment in %s cannot decay", DTypeName(c.moment_dtype)),
         .explanation = absl::StrFormat(
             "Of %d sampled elements with g^2 < v, %d fell. Replaying the update (%s, beta2 = %g) "
             "in "
             "%s gives the recorded bits for %d of the %d others: what should be taken away is "
             "rounded away.",
             f.all, fell, replay.name, replay.beta2, DTypeName(c.moment_dtype), replay.explained,
             f.still.size()),
         .cause = "low-precision-moment",
         .measured = "elements that fell",
         .value = static_cast<double>(fell) / static_cast<double>(f.all),
         .unit = "share",
         .threshold = share_,
         .threshold_source = "option share",
         .fix = "Keep the second moment in fp32 (step fp32 masters; Transformer Engine "
                "exp_avg_sq_dtype=torch.float32; Megatron-LM --exp-avg-sq-dtype fp32), or lower "
                "beta2."});
    v1::Finding& finding = *verdict.mutable_finding();
    finding.set_sample_size(f.all);
    constexpr size_t kListed = 3;
    for (size_t n = 0; n < std::min(kListed, f.still.size()); ++n) {
      const size_t i = f.still[n];
      Put(*finding.mutable_witness(), absl::StrCat("element ", n + 1),
          absl::StrFormat("[%d]: v = %.9g, g^2 = %.6g, v after = %.9g; exactly %.9g", c.offsets[i],
                          c.moment_before[i], c.gradient[i] * c.gradient[i], c.moment_after[i],
                          replay.beta2 * c.moment_before[i] +
                              (1 - replay.beta2) * c.gradient[i] * c.gradient[i]));
    }
    *verdict.mutable_details() = Describe(c, f);
    Put(*verdict.mutable_details(), "replay", replay.name);
    Put(*verdict.mutable_details(), "beta2", replay.beta2);
    Put(*verdict.mutable_details(), "explained", static_cast<double>(replay.explained));
    if (replay.beta2 != config.beta2())
      verdict.add_assumptions("beta2 is a customary value, found by replay");
    return verdict;
  }

  static google::protobuf::Struct Describe(const UpdateCase& c, const Falling& f) {
    google::protobuf::Struct details;
    Put(details, "dtype", DTypeName(c.moment_dtype));
    Put(details, "sampled", static_cast<double>(c.size()));
    Put(details, "must_fall", static_cast<double>(f.all));
    Put(details, "fell", static_cast<double>(f.all - f.still.size()));
    Put(details, "non_finite", static_cast<double>(f.non_finite));
    return details;
  }

  size_t elements_;
  double share_;
  UpdateWindow window_;
};

}  // namespace

CatalogueEntry moment_ratchet() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MomentRatchet>(options);
          }};
}

}  // namespace plumbline::rules
