#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "analysis/sums/sums.h"
#include "analysis/tensor/tensor.h"
#include "analysis/weights/weights.h"
#include "base/half.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/ema-stall

A moving average of the weights cannot change: each step towards the weights is rounded back to the old value.

**Why.** In bf16 an average with decay d moves only where |p−e| is above 2⁻⁹/(1−d) of |e|: with d = 0.999, 195 %
of the weight itself; with d = 0.9999, twenty times it. With weights that have moved by 5 % since
the average was set up, none of a million elements can move at 0.99 or above (58 % at 0.9), and the "average" that is evaluated and published is
the checkpoint from which it was started. In fp32 the limit is 6e-5 of the weight at d = 0.999.

**Bad.** `0 of 4,096 sampled elements can move`: an EMA of a bf16 model, kept in bf16.

**Good.** Shadow weights in fp32, cast when they are evaluated.

**How to fix it.**
- diffusers: `EMAModel(unet.parameters())` on an fp32 copy; `ema.to(dtype=torch.float32)`.
- PyTorch: `torch.optim.swa_utils.AveragedModel(model.float(), multi_avg_fn=get_ema_multi_avg_fn(0.999))`.
- timm: `ModelEmaV3` before `.to(torch.bfloat16)`. NeMo, Megatron-LM: keep the EMA of the fp32 main parameters.
- Or update every k steps with decay dᵏ: the step grows by k.

**What it checks.** Of an update with `optimizer` "ema" (or one with a `decay` and no optimizer named):
e ← e + (1−d)(p−e), `intended` being (1−d)(p−e). Of the sampled elements with p ≠ e, how many are able to move,
that is fl(e + (1−d)(p−e)) ≠ e, rounded once to nearest even in the dtype of e. A finding needs at least
1,000 elements with p ≠ e, fewer than 10 % of them able to move, and as few that did move.

**In checkpoints** the average is stored with its weights, and its decay is not recorded; 2,048 elements are sampled.
One is due where its weight lay on one
side of it in all checkpoints, so far away that an average of decay 0.9999 (option `decay`) had to move by a unit in its
last place. A finding needs three checkpoints, 1,000 due elements of which fewer than 10 % ever moved, and 16 bits; it is `heuristic`.
A cast of an fp32 average moves its due elements, and passes.

**An average that is never updated**, in fp32, keeps its bits over four checkpoints, to the newest one, while its weights change and half of its sampled elements are far from them (64 units in the last place):
warning, `proved`. One that equals its weights in each of three checkpoints or more, while they change, to the end is a copy of them: warning. A counter next to the averages (`n_averaged`) that
does not rise shows that averaging has not begun.

**The level** is warning whatever the share below a tenth: training itself does not read the average.

| elements that are able to move | what it means for the run | level |
|---|---|---|
| a tenth and more | the average follows, late in elements that change little | pass |
| fewer, in bf16 or fp16 | what is evaluated and shipped is the checkpoint that the average was set up from | warning |
| fewer, in f32 | weights stand within 6e-5 of their average: a warm-up, or the end of a schedule | note |

**Strength.** `proved`: each counted element is replayed. The level is warning; a note for averages in f32 and f64,
which do not change while the weights are within 6e-8/(1−d) of them (a warm-up from a rate of zero) and move after that.

**Inconclusive when** fewer than 1,000 sampled elements have p ≠ e, the step has no sampled elements, or
elements do not change though rounding does not prevent it (an average that is updated every few steps), some
moved that rounding to nearest would have held (stochastic rounding, a copy of an fp32 average, d·e rounded before p is
added), or (in checkpoints) an average in f32 does not change (it may not be updated at all), or stochastic
rounding gives no change for this long with a probability above 1e-5. That chance is multiplied
over the steps since the average last moved: long averages are reported late.

**Reasons.** `few-elements`: too few sampled elements of the average had to change; `few-checkpoints`: too few
checkpoints; `moves-otherwise`: elements changed that one rounding to nearest would keep, and not by the intended
change; `not-rounding`: elements did not change though rounding does not prevent it; `stochastic-possible`: stochastic
rounding could also change so few elements; `poisoned`: averages or weights are NaN or infinite.

**What it cannot see.** An average that moves a little on 10 % of its elements and lags on the others; a
decay that is simply too long.

**Cost.** The update check on sampled steps; nothing is kept.

**Sources.** Polyak and Juditsky, 1992; Karras et al., "Analyzing and Improving the Training Dynamics of
Diffusion Models", 2024, on averages that are evaluated in place of the weights.
)page";

constexpr OptionInfo kOptions[] = {
    kUpdateElements,
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of elements that can change",
     .default_value = "0.1",
     .reason = "if nine of ten elements cannot change, the average is useless",
     .low = 0,
     .high = 1},
    {.name = "decay",
     .type = OptionInfo::Type::kNumber,
     .unit = "of the slowest average in use",
     .default_value = "0.9999",
     .reason = "checkpoints do not contain it; slower averages are not in use",
     .low = 0,
     .high = 0.9999999},
};

constexpr RuleInfo kInfo = {"precision/ema-stall",
                            "a moving average cannot change",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

struct AverageCounts {
  size_t apart = 0;  // p != e
  size_t able = 0;   // among `apart`: rounding the sum gives a value other than e
  size_t moved = 0;
  size_t held = 0;    // unchanged, because the rounded sum is e
  size_t chance = 0;  // moved, although the rounded sum is e
  size_t non_finite = 0;
  double intended = 0;  // sum of |intended|
  double applied = 0;   // sum of the changes along the intended ones
  std::vector<size_t> listed;

  // True if the applied change is between a half and one and a half of the intended one.
  bool arrived() const { return applied > 0.5 * intended && applied < 1.5 * intended; }
};

AverageCounts LookAtAverage(const UpdateCase& c) {
  constexpr size_t kListed = 3;
  AverageCounts n;
  for (size_t i = 0; i < c.size(); ++i) {
    if (!std::isfinite(c.before[i]) || !std::isfinite(c.intended[i])) {
      ++n.non_finite;
      continue;
    }
    if (c.intended[i] == 0) continue;
    ++n.apart;
    const double change = c.after[i] - c.before[i];
    if (std::isfinite(change)) {
      n.intended += std::abs(c.intended[i]);
      n.applied += c.intended[i] > 0 ? change : -change;
    }
    const bool able = RoundedSum(c.before[i], c.intended[i], c.dtype) != c.before[i];
    n.able += able ? 1 : 0;
    n.moved += c.unchanged[i] == 0 ? 1 : 0;
    n.chance += !able && c.unchanged[i] == 0 ? 1 : 0;
    if (able || c.unchanged[i] == 0) continue;
    ++n.held;
    if (n.listed.size() < kListed) n.listed.push_back(i);
  }
  return n;
}

class EmaStall : public ScalarRule {
 public:
  explicit EmaStall(const Options& options)
      : elements_(static_cast<size_t>(options.Integer("elements"))),
        share_(options.Number("share")),
        courses_(elements_, share_, options.Number("decay")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return AverageCourses::ReadsScalar(site);
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    JudgeItems(
        step, [&](const Item& item) { return JudgeOne(step, item); }, out);
    courses_.Take(step);
    follows_.Take(step);
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    courses_.Close(step, out);
    follows_.Close(step);
  }
  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    courses_.Rest(out);
    follows_.Rest(out);
  }

  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(3, 1);
    archive(window_, log_chances_);
    if (version >= 2) courses_.Persist(archive);
    if (version >= 3) follows_.Persist(archive);
  }

 private:
  std::optional<v1::Verdict> JudgeOne(const SiteStep& step, const Item& item) {
    if (!item.evidence->has_update() || !IsAverage(item.evidence->update().config()))
      return std::nullopt;
    const v1::Update& update = item.evidence->update();
    auto sample = DecodeUpdate(update);
    if (!sample.ok()) return Inconclusive(std::string(sample.status().message()));
    const UpdateWindow::Gathered& gathered = window_.Add(step, item, *std::move(sample));
    const AverageCounts n = LookAtAverage(gathered.sample);
    if (n.apart < elements_) {
      return Inconclusive(
          absl::StrCat("few-elements: fewer than ", elements_,
                       " sampled elements differ from the weights that they average"),
          Describe(gathered.sample, n));
    }
    double& log_chance =
        log_chances_[{step.role, step.site.layer(), step.site.op(), item.source->rank()}];
    v1::Verdict verdict = Weigh(update, gathered.sample, n, log_chance);
    verdict.mutable_site()->set_step_first(gathered.step_first);
    verdict.mutable_site()->set_step_last(step.step);
    window_.Forget(step, item);
    return verdict;
  }

  // `log_chance` is ln of the probability that stochastic rounding changed nothing in all updates
  // since the average last moved.
  v1::Verdict Weigh(const v1::Update& update, const UpdateCase& c, const AverageCounts& n,
                    double& log_chance) const {
    const double most = share_ * static_cast<double>(n.apart);
    const bool moves = !(static_cast<double>(n.moved) < most);
    const bool able = !(static_cast<double>(n.able) < most);
    if (moves || able || n.chance > 0) log_chance = 0;
    if (moves && (able || n.arrived())) return Pass("the average changes", Describe(c, n));
    if (moves) {
      return Inconclusive(
          "moves-otherwise: elements changed that one rounding to nearest would keep, and not by "
          "the intended change (each product is rounded separately)",
          Describe(c, n));
    }
    if (able) {
      return Inconclusive(
          "not-rounding: elements did not change though rounding does not prevent it (an average "
          "that is not updated in every step)",
          Describe(c, n));
    }
    log_chance += n.chance > 0 ? 0 : LogChanceIfStochastic(c, update.summary());
    if (n.chance > 0 || !(log_chance < std::log(kStochasticChance))) {
      return Inconclusive(
          "stochastic-possible: stochastic rounding could also change so few elements, and it "
          "loses nothing",
          Describe(c, n));
    }
    return Found(update.config(), c, n);
  }

  v1::Verdict Found(const v1::UpdateConfig& config, const UpdateCase& c,
                    const AverageCounts& n) const {
    const bool wide = c.dtype == DType::kF32 || c.dtype == DType::kF64;
    const double share = static_cast<double>(n.able) / static_cast<double>(n.apart);
    FindingBuilder found(wide ? v1::LEVEL_NOTE : v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("a moving average in %s cannot change", DTypeName(c.dtype)))
        .Explain(absl::StrFormat(
            "%d sampled elements differ from the weights that they average, and %d can change: for "
            "the others e + (1 - d)(p - e), rounded once to %s, is e. %d kept their bits.",
            n.apart, n.able, DTypeName(c.dtype), n.held))
        .Cause(wide ? "weights-too-near" : "low-precision-average", 1)
        .Measured("elements that can change", share, "share")
        .Threshold(share_, "option share")
        .Fix(wide ? "If the weights have hardly changed yet, do nothing. Otherwise use a shorter "
                    "average, or update it every k steps with decay d^k."
                  : "Keep the average in fp32 and cast it on use (EMAModel or AveragedModel over "
                    "an fp32 copy), or update it every k steps with decay d^k.")
        .Samples(n.apart);
    for (size_t k = 0; k < n.listed.size(); ++k) {
      const size_t i = n.listed[k];
      std::string text =
          absl::StrFormat("[%d]: e = %.9g, step %.9g, half an ulp is %.3g", c.offsets[i],
                          c.before[i], c.intended[i], 0.5 * UlpOf(c.before[i], c.dtype));
      if (config.decay() > 0 && config.decay() < 1)
        absl::StrAppendFormat(&text, ", p = %.6g",
                              c.before[i] + c.intended[i] / (1 - config.decay()));
      found.Witness(absl::StrCat("element ", k + 1), text);
    }
    *found.verdict().mutable_details() = Describe(c, n);
    found.verdict().add_assumptions("intended is (1 - decay)(p - e) in full precision");
    return found.Take();
  }

  static google::protobuf::Struct Describe(const UpdateCase& c, const AverageCounts& n) {
    google::protobuf::Struct details;
    Put(details, "dtype", DTypeName(c.dtype));
    Put(details, "sampled", static_cast<double>(c.size()));
    Put(details, "apart", static_cast<double>(n.apart));
    Put(details, "able", static_cast<double>(n.able));
    Put(details, "moved", static_cast<double>(n.moved));
    Put(details, "non_finite", static_cast<double>(n.non_finite));
    return details;
  }

  size_t elements_;
  double share_;
  UpdateWindow window_;
  std::map<std::tuple<v1::Role, std::string, std::string, uint32_t>, double> log_chances_;
  AverageCourses courses_;  // averages in checkpoints
  AverageFollows follows_;  // the same: is each one updated at all?
};

}  // namespace

CatalogueEntry ema_stall() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<EmaStall>(options);
          }};
}

}  // namespace plumbline::rules
