#include <cmath>
#include <memory>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "analysis/sums/sums.h"
#include "analysis/tensor/tensor.h"
#include "base/half.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/lost-update

The optimizer computes a step, but the weights do not change: the step is smaller than half the spacing of
their dtype, so the sum rounds back to the old value.

**Why.** bf16 keeps 8 bits: near 0.02 values are 1.2e-4 apart and a step below 6e-5 vanishes. With weights
from N(0, 0.02²) and steps from N(0, 1e-5²), as Adam makes them at a rate of 1e-5, 88 % of the elements
do not change and 78 % of the step is lost; at 1e-4 it is 32 % and 6 %. The loss falls all the same, because
small weights still change, and its curve shows nothing.

**Bad.** `88 % of 65,536 elements kept their bits; 22 % of the intended change arrived`.

**Good.** Weights, or a master copy of them, in fp32.

**How to fix it.**
- Keep fp32 masters: Megatron-LM `--bf16` (with `--use-precision-aware-optimizer` also
  `--main-params-dtype fp32`); DeepSpeed `bf16: {enabled: true}` (its BF16_Optimizer keeps them); FSDP
  `MixedPrecision(param_dtype=torch.bfloat16)` over fp32 parameters rather than `model.bfloat16()`;
  PyTorch `torch.autocast` over an fp32 model.
- Or round stochastically: torchao `AdamW8bit(..., bf16_stochastic_round=True)`, Transformer Engine
  `FusedAdam(store_param_remainders=True)`, or compensate (optimi's `kahan_sum=True`).
- Observe what the optimizer keeps: hand the fp32 master to the probe, not the bf16 copy of it.

**What it checks.** Of one update, over the whole tensor: the change along the intended one, over the
intended one: sum of (after − before)·sign(Δ) over sum of |Δ|. Below a half, with at least 1,000 elements
with an intended change, the sampled elements are replayed: an element counts as lost when Δ ≠ 0, `after`
has the bits of `before`, and before + Δ, summed exactly and rounded once to nearest even, is `before`.

**The level** follows what arrives, of weights from N(0, 0.02²) in bf16 (simulated, 60,000 elements):

| steps from N(0, s²), s = | elements that stand still | of the change arrives | level |
|---|---|---|---|
| 1e-4 | 33 % | 93 % | pass |
| 3e-5 | 68 % | 57 % | pass |
| 1e-5 | 88 % | 22 % | warning |
| 3e-6 | 96 % | 7 % | error |
| 3e-7 | 99.6 % | 0.7 % | error |

Below a tenth the run is one at a tenth of its learning rate: the model does not learn what it is shown (Zamirai et
al., 2020, find bf16 weights without remedy several points worse).

**Stored on one side.** `after` may also be before + Δ always cut toward zero (or away from it, down, up): a cast by
shifting. Every step then moves each weight by half a unit in addition to the intended change, in one direction: at 1e-5
above that is 5.6 times the step itself, as a decay. It is reported if 99 in 100 of at least 64 sampled
elements are on that side, 16 and more of them where the nearest value is on the other, and stochastic rounding would do it with a
chance below 1e-9. A note where the drift is below 1 % of the intended change, a warning, an error where it is more than
the change itself.

**Strength.** `proved`: every listed element is replayed. The level is warning, and error where less than a tenth
arrives; a note for f32 and f64 weights, whose lost steps are below 6e-8 of the weight (a schedule that ends at zero).

**Small tensors** (biases, norms: fewer than 1,000 elements) are put together, those of one rank, optimizer and dtype, over tensors and
steps, until there are 1,000; the verdict's place is then `small tensors`, and its witnesses name tensor and element.

**Inconclusive when** fewer than 1,000 elements were meant to move, in all small tensors and steps together; the step has no sampled elements;
elements did not change though rounding does not prevent it (a step that was skipped, a frozen tensor); or so few
units in the last place were intended that stochastic rounding could have done the same with a
probability above 1e-5, or `optimizer` states that rounding errors are stored with the weights ("adamw-kahan", "compensated"):
declare it, because the weights of one step cannot show it. A tensor that once moved as only stochastic rounding moves is not accused again.

**Reasons.** `compensated`, `stochastic`: the optimizer declares that it keeps or spreads what rounding drops;
`no-mass`: the intended change cannot be summed; `few-elements`: too few elements had an intended change;
`not-rounding`: elements stayed or changed for another reason than rounding; `stochastic-possible`: stochastic
rounding could apply as little.

**What it cannot see.** A bf16 copy of an fp32 master also does not change until the master has left
its grid point: that the values are what the optimizer keeps is an assumption. Losses in the gradients before
Δ (`grad-accumulation`, `collective-sum`) or in averages (`ema-stall`).

**Cost.** Three reads of the tensor on sampled steps; nothing is kept.

**Sources.** Zamirai et al., "Revisiting BFloat16 Training", 2020, on weight updates; Gupta et al., "Deep
Learning with Limited Numerical Precision", 2015, on stochastic rounding.
)page";

constexpr OptionInfo kOptions[] = {
    kUpdateElements,
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "applied change / intended change",
     .default_value = "0.5",
     .reason = "below it more than half of the change is lost",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {"precision/lost-update",
                            "updates are lost in rounding",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr double kExplained = 0.99;  // share of the unchanged elements that rounding explains
constexpr size_t kFewSampled = 64;
// Share of the intended change; a smaller applied change is only rounding error.
constexpr double kLittle = 0.1;
constexpr double kDriftOfNote = 0.01, kDriftOfError = 1;

// Sampled elements that were intended to move.
struct Sampled {
  size_t intended = 0;
  size_t unchanged = 0;
  size_t lost = 0;  // unchanged, because rounding removes the change
  std::vector<size_t> listed;
};

Sampled LookAtUpdate(const UpdateCase& c) {
  constexpr size_t kListed = 3;
  Sampled s;
  for (size_t i = 0; i < c.size(); ++i) {
    if (!std::isfinite(c.before[i]) || !std::isfinite(c.intended[i]) || c.intended[i] == 0)
      continue;
    ++s.intended;
    if (c.unchanged[i] == 0) continue;
    ++s.unchanged;
    if (RoundedSum(c.before[i], c.intended[i], c.dtype) != c.before[i]) continue;
    ++s.lost;
    if (s.listed.size() < kListed) s.listed.push_back(i);
  }
  return s;
}

bool Wide(DType t) { return t == DType::kF32 || t == DType::kF64; }

class LostUpdate : public Rule {
 public:
  explicit LostUpdate(const Options& options)
      : elements_(static_cast<uint64_t>(options.Integer("elements"))),
        share_(options.Number("share")) {}

  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    JudgeItems(
        step, [&](const Item& item) { return JudgeOne(step, item); }, out);
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    pool_.JudgeEach(step, out, [this](const UpdatePool::Pooled& p) { return JudgePooled(p); });
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    pool_.ReportLeft(FewElements(), out);
  }

  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(2, 1);
    archive(stochastic_);
    if (version >= 2) archive(pool_);
  }

 private:
  using SiteKey = std::tuple<v1::Role, std::string, std::string, uint32_t>;  // with the rank

  std::optional<v1::Verdict> JudgeOne(const SiteStep& step, const Item& item) {
    if (!item.evidence->has_update()) return std::nullopt;
    const v1::Update& update = item.evidence->update();
    if (IsAverage(update.config()) || IsAccumulation(update.config())) return std::nullopt;
    const v1::UpdateSummary& s = update.summary();
    if (s.intended() < elements_) return Gather(step, item);
    const double applied = s.applied_along() / s.intended_l1();
    if (!std::isfinite(applied))
      return Inconclusive("no-mass: the intended change cannot be summed", Describe(update));
    const SiteKey key{step.role, step.site.layer(), step.site.op(), item.source->rank()};
    const auto c = DecodeUpdate(update);
    if (c.ok()) {
      const OneSidedStore store = FindOneSidedStore(*c);
      if (!store.side.empty()) return OneSided(update, *c, store);
    }
    if (applied >= share_) {
      if (c.ok() && MovedByChance(*c, s)) stochastic_.insert(key);
      return Pass("at least half of the intended change was applied", Describe(update));
    }
    if (!c.ok()) return Inconclusive(std::string(c.status().message()), Describe(update));
    if (IsCompensated(update.config())) {
      return Inconclusive(
          "compensated: the optimizer stores rounding errors in its own buffer; record before and "
          "after with that buffer added, in full precision",
          Describe(update));
    }
    if (const std::string other = OtherReason(*c, s, stochastic_.contains(key)); !other.empty())
      return Inconclusive(other, Describe(update));
    return Found(update, *c, applied);
  }

  std::string FewElements() const {
    return absl::StrCat("few-elements: fewer than ", elements_,
                        " finite elements had an intended change");
  }

  // Judges a small tensor together with others, and over steps.
  std::optional<v1::Verdict> Gather(const SiteStep& step, const Item& item) {
    const v1::Update& update = item.evidence->update();
    if (step.late) return Inconclusive(FewElements(), Describe(update));
    const auto c = DecodeUpdate(update);
    UpdatePool::Pooled* pool = pool_.Add(step, item, c.ok() ? &*c : nullptr);
    if (pool == nullptr) return Inconclusive(FewElements(), Describe(update));
    if (c.ok() && MovedByChance(*c, update.summary())) pool->marked = true;
    return std::nullopt;
  }

  std::optional<v1::Verdict> JudgePooled(const UpdatePool::Pooled& p) const {
    const v1::UpdateSummary& s = p.update.summary();
    if (s.intended() < elements_) return std::nullopt;
    const double applied = s.applied_along() / s.intended_l1();
    if (!std::isfinite(applied))
      return Inconclusive("no-mass: the intended change cannot be summed", Describe(p.update));
    if (applied >= share_)
      return Pass("at least half of the intended change was applied", Describe(p.update));
    if (IsCompensated(p.update.config())) return Inconclusive("compensated", Describe(p.update));
    if (const std::string other = OtherReason(p.sample, s, p.marked); !other.empty())
      return Inconclusive(other, Describe(p.update));
    return Found(p.update, p.sample, applied, &p);
  }

  // Returns true for names such as "adamw-kahan", "compensated sgd".
  static bool IsCompensated(const v1::UpdateConfig& config) {
    const std::string name = absl::AsciiStrToLower(config.optimizer());
    return absl::StrContains(name, "kahan") || absl::StrContains(name, "compensat");
  }

  // Returns true if elements moved that one rounding to nearest would have left unchanged.
  static bool MovedByChance(const UpdateCase& c, const v1::UpdateSummary& s) {
    for (size_t i = 0; s.misrounded() > 0 && i < c.size(); ++i) {
      if (c.unchanged[i] != 0 || !std::isfinite(c.intended[i]) || !std::isfinite(c.after[i]))
        continue;
      if (c.intended[i] != 0 && RoundedSum(c.before[i], c.intended[i], c.dtype) == c.before[i])
        return true;
    }
    return false;
  }

  // Returns another possible reason than rounding to nearest for the small change. If there is
  // none, returns "".
  static std::string OtherReason(const UpdateCase& c, const v1::UpdateSummary& s, bool stochastic) {
    if (stochastic) return "stochastic: this tensor is rounded stochastically";
    const Sampled seen = LookAtUpdate(c);
    if (seen.intended < kFewSampled)
      return "few-elements: too few sampled elements had an intended change";
    const auto unchanged = static_cast<double>(seen.unchanged);
    if (seen.lost == 0 || static_cast<double>(seen.lost) < kExplained * unchanged) {
      return "not-rounding: elements did not change though rounding does not prevent it (a skipped "
             "step, a frozen tensor, or an intended change that is not the optimizer's)";
    }
    // The lost part must be the missing part.
    if (!(s.lost_l1() >= 0.5 * (s.intended_l1() - s.applied_along()))) {
      return "not-rounding: elements changed, but not by the intended change (a change that is not "
             "the optimizer's)";
    }
    // f32 is not rounded stochastically in practice.
    if (!Wide(c.dtype) && !(LogChanceIfStochastic(c, s) < std::log(kStochasticChance))) {
      return "stochastic-possible: the intended change is so few units in the last place that "
             "stochastic rounding could apply as little";
    }
    return "";
  }

  // `pool` has the tensors of the elements; null if there is one.
  v1::Verdict Found(const v1::Update& update, const UpdateCase& c, double applied,
                    const UpdatePool::Pooled* pool = nullptr) const {
    const v1::UpdateSummary& s = update.summary();
    const Sampled seen = LookAtUpdate(c);
    const bool wide = Wide(c.dtype);
    const double share = static_cast<double>(s.lost()) / static_cast<double>(s.intended());
    FindingBuilder found(wide                ? v1::LEVEL_NOTE
                         : applied < kLittle ? v1::LEVEL_ERROR
                                             : v1::LEVEL_WARNING,
                         v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("%s weights lose their updates in rounding", DTypeName(c.dtype)))
        .Explain(absl::StrFormat(
            "%.1f %% of %d elements kept their bits though the update was not zero; %.1f %% of the "
            "intended change was applied. Of %d sampled elements that did not change, %d are "
            "proved lost: before + intended, rounded once to %s, is before.",
            100 * share, s.intended(), 100 * applied, seen.unchanged, seen.lost,
            DTypeName(c.dtype)))
        .Cause("no-master-weights", 1)
        .Measured("applied change / intended change", applied, "share")
        .Threshold(share_, "option share")
        .Fix(wide ? "If the schedule ends at zero, do nothing. Otherwise raise the learning rate "
                    "or use compensated sums."
                  : "Keep fp32 master weights (FSDP MixedPrecision over fp32 parameters, "
                    "DeepSpeed bf16, Megatron-LM --main-params-dtype fp32), or round "
                    "stochastically (torchao bf16_stochastic_round=True).")
        .Samples(s.count());
    for (size_t n = 0; n < seen.listed.size(); ++n) {
      const size_t i = seen.listed[n];
      found.Witness(absl::StrCat("element ", n + 1),
                    absl::StrFormat(
                        "%s: %.9g + %.9g = %.9g, half an ulp is %.3g",
                        pool ? pool->ElementName(i) : absl::StrCat("[", c.offsets[i], "]"),
                        c.before[i], c.intended[i], c.after[i], 0.5 * UlpOf(c.before[i], c.dtype)));
    }
    *found.verdict().mutable_details() = Describe(update);
    found.verdict().add_assumptions(
        "before and after are the values that the optimizer stores, not a rounded copy of a "
        "master");
    found.verdict().add_assumptions("intended is the whole change in full precision");
    return found.Take();
  }

  static v1::Verdict OneSided(const v1::Update& update, const UpdateCase& c,
                              const OneSidedStore& store) {
    FindingBuilder found(store.drift >= kDriftOfError  ? v1::LEVEL_ERROR
                         : store.drift >= kDriftOfNote ? v1::LEVEL_WARNING
                                                       : v1::LEVEL_NOTE,
                         v1::STRENGTH_PROVED);
    found
        .Title(absl::StrFormat("updated %s weights are always rounded %s", DTypeName(c.dtype),
                               store.side))
        .Explain(absl::StrFormat(
            "%d of %d sampled elements whose before + intended is no %s value are that sum rounded "
            "%s; %d of them are nearer to the other side. Stochastic rounding gives this with "
            "probability e^%.0f. The error moves the weights %.3g times as far as the intended "
            "change, in one direction.",
            store.matched, store.rounded, DTypeName(c.dtype), store.side, store.informative,
            store.log_chance, store.drift))
        .Cause("one-sided-store", 1)
        .Measured("drift / intended change", store.drift, "share")
        .Threshold(store.drift >= kDriftOfError ? kDriftOfError : kDriftOfNote,
                   "warning from 1 % of the change, error from 100 %")
        .Fix(
            "Round to nearest when you store weights (no shift of the bits), or keep fp32 master "
            "weights.")
        .Samples(store.rounded);
    for (size_t n = 0; n < store.listed.size(); ++n) {
      const size_t i = store.listed[n];
      found.Witness(absl::StrCat("element ", n + 1),
                    absl::StrFormat("[%d]: %.9g + %.9g was stored as %.9g, half an ulp is %.3g",
                                    c.offsets[i], c.before[i], c.intended[i], c.after[i],
                                    0.5 * UlpOf(c.before[i], c.dtype)));
    }
    *found.verdict().mutable_details() = Describe(update);
    found.verdict().add_assumptions("intended is the whole change in full precision");
    return found.Take();
  }

  static google::protobuf::Struct Describe(const v1::Update& update) {
    const v1::UpdateSummary& s = update.summary();
    google::protobuf::Struct details;
    Put(details, "dtype", DTypeName(static_cast<DType>(update.config().dtype())));
    Put(details, "elements", static_cast<double>(s.count()));
    Put(details, "intended", static_cast<double>(s.intended()));
    Put(details, "lost", static_cast<double>(s.lost()));
    Put(details, "non_finite", static_cast<double>(s.non_finite()));
    if (s.intended() > 0) {
      Put(details, "lost_share", static_cast<double>(s.lost()) / static_cast<double>(s.intended()));
      Put(details, "applied_over_intended", s.applied_along() / s.intended_l1());
      Put(details, "lost_mass_share", s.lost_l1() / s.intended_l1());
    }
    return details;
  }

  uint64_t elements_;
  double share_;
  std::set<SiteKey> stochastic_;
  UpdatePool pool_;
};

}  // namespace

CatalogueEntry lost_update() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LostUpdate>(options);
          }};
}

}  // namespace plumbline::rules
