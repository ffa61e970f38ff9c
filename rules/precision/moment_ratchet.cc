#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/moments/moments.h"
#include "analysis/sample/sample.h"
#include "analysis/tensor/tensor.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/moment-ratchet

Adam's second moment can rise, but cannot fall: its decay is below half the spacing of its dtype.

**Why.** With β2 = 0.999 the largest decay is 0.1 % of v; bf16 rounds away anything below 0.2 to 0.4 %. So v
rises with every large gradient and never falls: from 0, with normal gradients of variance one, it is 2.5
after 30,000 steps (fused; 4.0 when .999·v is rounded first), and higher the longer it runs. The step is
1/sqrt(v): this is a learning rate that falls by itself (by 37 % and by 50 %) and never recovers after a spike.

**Bad.** `0 of 2,793 elements fell where g² < v/2; bf16, β2 = 0.999`.

**Good.** v in fp32; or in bf16 with β2 = 0.95, where the decay is 5 %.

**How to fix it.**
- Keep the state in fp32: PyTorch allocates it in the parameters' dtype, so step fp32 masters; Transformer
  Engine `FusedAdam(exp_avg_sq_dtype=torch.float32)`; Megatron-LM `--exp-avg-sq-dtype fp32`; DeepSpeed: leave
  `fp16_master_weights_and_gradients` off.
- Or quantise with a scale and stochastic rounding (torchao, bitsandbytes 8-bit Adam), or lower β2.

**What it checks.** The sampled elements of an update with its gradient and the second moment before
and after: v ← β2·v + (1−β2)·g². Where g² < v/2, v must fall, by half of its largest decay at least. A finding
needs at least 1,000 such elements, of which less than 1 % fell, and a replay that gives the recorded bits: the
update is computed for each of them in the ways optimizers compute it (fused and rounded once; β2·v rounded first,
as a multiply and then an add do; each product rounded), in double and in fp32, and one way must explain 99 %
of those that did not change. Early in a run v still rises nearly everywhere and few must fall; then 1,000 elements of
any kind do: where the replay gives the bits of 99 % of them, *its* arithmetic is known, and so is what it would do
to each v if no gradient came at all. Less than 1 % able to fall under every way that explains them is the finding.

**In checkpoints** there is no gradient; v itself is followed, at 2,048 sampled elements per tensor. A finding needs three checkpoints, the first
of them 4/(1−β2) steps after the start (until then an average rises whatever its dtype), at least 1,000 elements that moved,
less than 1 % of which ever fell, and a dtype in which a decay of 1−β2 is below half of the spacing. That is `heuristic`.

**The level** is warning (figures: bf16, β2 = 0.999, from 0, normal gradients):

| after steps | v over E[g²] (fused / .999·v rounded first) | the learning rate is | level |
|---|---|---|---|
| v can fall (f32, or β2 of 0.99 and less in bf16) | 1 | as set | pass |
| 30,000 | 2.5 / 4.0 | 37 % / 50 % down | warning |
| any, after one gradient 30 times the usual | 900·(1−β2) = 0.9 more, for good | 27 % down where v was 1 | warning |

No error: directions stay right, steps become smaller, and a schedule hides it (Dettmers et al., 2022, keep the second moment in
8 bits with a scale for each block, whose decay does not stall).

**Strength.** `proved`: each listed element is replayed to the bit.

**Together.** Tensors of one rank, optimizer and dtype that have too few such elements are put together (a live sample holds 256 an
update); the verdict's place is then `small tensors`, and its witnesses name tensor and element.

**Inconclusive when** there are fewer than 1,000 such elements in all of them and in all sampled steps, the gradient
was not recorded, nothing moved at all as in a skipped step, no replay gives the
recorded moments, checkpoints are fewer than three or too early, or the optimizer is AMSGrad, whose maximum never
falls by design. Elements that no step could
have touched (no gradient, nothing moved: rows of a sparse embedding) and moments below eps² (their root is small
compared with eps) are excluded.

**Reasons.** `skipped`: no step was made;
`not-recorded`: the gradient and the second moment before and after are needed; `few-elements`: too few
sampled elements; `few-checkpoints`: too few checkpoints; `amsgrad`: the maximum never falls, by design;
`not-rounding`: no replay of the update gives the recorded moments; `early`: the average is still in its start phase;
`still`: no sampled element changed between checkpoints; `rising`: no moment fell, though its dtype can hold its
decay; `poisoned`: moments are NaN or infinite.

**What it cannot see.** A first moment that stalls (β1 = 0.9 decays by 10 %, which every dtype shows); a
gradient that was scaled or clipped after it was recorded, where that changes the replay.

**Cost.** A replay of at most 4,096 elements on sampled steps.

**Sources.** Kingma and Ba, "Adam", 2015; Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022.
)page";

constexpr OptionInfo kOptions[] = {
    kUpdateElements,
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of elements that fell, or can fall",
     .default_value = "0.01",
     .reason = "all of them should",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {"precision/moment-ratchet",
                            "a second moment cannot decay",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

class MomentRatchet : public ScalarRule {
 public:
  explicit MomentRatchet(const Options& options)
      : elements_(static_cast<size_t>(options.Integer("elements"))),
        share_(options.Number("share")),
        courses_(elements_, share_) {}

  bool ReadsScalar(const v1::Site& site) const override { return MomentCourses::ReadsScalar(site); }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    JudgeItems(
        step, [&](const Item& item) { return JudgeOne(step, item); }, out);
    courses_.Take(step);
  }

  // Judges tensors together if each alone has too few moments that had to fall.
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    courses_.Close(step, out);
    pool_.JudgeEach(step, out, [this](const UpdatePool::Pooled& p) {
      if (p.layers.size() < 2) return std::optional<v1::Verdict>();  // window_ has this tensor
      const v1::UpdateConfig& config = p.update.config();
      const Falling f = LookAtMoment(p.sample, LeastMoment(config, p.sample.moment_dtype));
      return f.all >= elements_ ? Weigh(config, p.sample, f, &p) : std::optional<v1::Verdict>();
    });
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    pool_.ReportLeft(FewElements(), out);
    courses_.Rest(out);
  }

  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(3, 1);
    archive(window_);
    if (version >= 2) archive(pool_);
    if (version >= 3) courses_.Persist(archive);
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
    const UpdateCase fresh = *c;
    const UpdateWindow::Gathered& gathered = window_.Add(step, item, *std::move(c));
    const v1::UpdateConfig& config = update.config();
    const UpdateCase& sample = gathered.sample;
    const Falling f = LookAtMoment(sample, LeastMoment(config, sample.moment_dtype));
    std::optional<v1::Verdict> verdict =
        f.all >= elements_ ? Weigh(config, sample, f) : WeighEarly(config, sample, f);
    if (!verdict) {
      if (pool_.Add(step, item, &fresh) != nullptr) return std::nullopt;
      return Inconclusive(FewElements(), Describe(sample, f));
    }
    verdict->mutable_site()->set_step_first(gathered.step_first);
    verdict->mutable_site()->set_step_last(step.step);
    window_.Forget(step, item);
    return verdict;
  }

  std::string FewElements() const {
    return absl::StrCat("few-elements: fewer than ", elements_,
                        " sampled elements have g^2 below half of their moment");
  }

  bool Few(size_t n, size_t of) const {
    return static_cast<double>(n) < share_ * static_cast<double>(of);
  }

  v1::Verdict Weigh(const v1::UpdateConfig& config, const UpdateCase& c, const Falling& f,
                    const UpdatePool::Pooled* pool = nullptr) const {
    if (!Few(f.fell(), f.all))
      return Pass("the second moment falls where its gradient is small", Describe(c, f));
    if (IsOptimizer(config, "amsgrad"))
      return Inconclusive("amsgrad: the maximum never falls, by design", Describe(c, f));
    if (!f.moved)
      return Inconclusive("skipped: neither weights nor moments changed", Describe(c, f));
    const MomentReplay replay = BestReplay(MomentReplays(c, f, config.beta2()));
    if (!ReplayExplains(replay.still, f.still.size())) {
      return Inconclusive(
          "not-rounding: no replay of the update gives the recorded moments (a skipped step, or a "
          "gradient that is not the optimizer's)",
          Describe(c, f));
    }
    v1::Verdict verdict = Found(
        c, f, replay,
        absl::StrFormat(
            "Of %d sampled elements with g^2 < v/2, %d fell. A replay of the update (%s, beta2 = "
            "%g) in %s gives the recorded bits for %d of the %d others: the decay is rounded away.",
            f.all, f.fell(), replay.arithmetic->name, replay.beta2, DTypeName(c.moment_dtype),
            replay.still, f.still.size()),
        "elements that fell", f.fell(), f.all, pool);
    Put(*verdict.mutable_details(), "explained", static_cast<double>(replay.still));
    return Complete(config, replay, std::move(verdict));
  }

  // If few moments had to fall so far, decides by what the arithmetic that explains all moments
  // would do without a gradient. If no arithmetic is proved, or equally good ones differ in that,
  // returns nullopt.
  std::optional<v1::Verdict> WeighEarly(const v1::UpdateConfig& config, const UpdateCase& c,
                                        const Falling& f) const {
    if (f.informative.size() < elements_ || !f.moved || IsOptimizer(config, "amsgrad"))
      return std::nullopt;
    std::optional<MomentReplay> best;
    size_t most = 0, least = f.informative.size();
    for (const MomentReplay& r : MomentReplays(c, f, config.beta2())) {
      if (!ReplayExplains(r.informative, f.informative.size())) continue;
      const size_t able = AbleToFall(c, f, r);
      most = std::max(most, able);
      least = std::min(least, able);
      if (!best || r.informative > best->informative) best = r;
    }
    if (!best) return std::nullopt;
    if (!Few(least, f.informative.size()) && (f.all == 0 || !Few(f.fell(), f.all)))
      return Pass("the second moment can fall", Describe(c, f));
    if (!Few(most, f.informative.size()) || f.fell() > 0) return std::nullopt;
    v1::Verdict verdict =
        Found(c, f, *best,
              absl::StrFormat(
                  "A replay of the update (%s, beta2 = %g) in %s gives the recorded bits of %d of "
                  "%d sampled elements. Without any gradient this arithmetic would lower %d of "
                  "them: the decay is rounded away. Of %d that had to fall (g^2 < v/2) none did.",
                  best->arithmetic->name, best->beta2, DTypeName(c.moment_dtype), best->informative,
                  f.informative.size(), most, f.all),
              "elements that can fall", most, f.informative.size());
    Put(*verdict.mutable_details(), "explained", static_cast<double>(best->informative));
    Put(*verdict.mutable_details(), "able", static_cast<double>(most));
    return Complete(config, *best, std::move(verdict));
  }

  v1::Verdict Found(const UpdateCase& c, const Falling& f, const MomentReplay& replay,
                    std::string explanation, const char* measured, size_t n, size_t of,
                    const UpdatePool::Pooled* pool = nullptr) const {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("the second moment in %s cannot decay", DTypeName(c.moment_dtype)))
        .Explain(std::move(explanation))
        .Cause("low-precision-moment", 1)
        .Measured(measured, static_cast<double>(n) / static_cast<double>(of), "share")
        .Threshold(share_, "option share")
        .Fix(
            "Keep the second moment in fp32 (step fp32 masters; Transformer Engine "
            "exp_avg_sq_dtype=torch.float32; Megatron-LM --exp-avg-sq-dtype fp32), or lower "
            "beta2.")
        .Samples(of);
    constexpr size_t kListed = 3;
    const std::vector<size_t>& shown = f.still.empty() ? f.informative : f.still;
    for (size_t k = 0; k < std::min(kListed, shown.size()); ++k) {
      const size_t i = shown[k];
      const double g2 = c.gradient[i] * c.gradient[i];
      found.Witness(
          absl::StrCat("element ", k + 1),
          absl::StrFormat("%s: v = %.9g, g^2 = %.6g, v after = %.9g; exactly %.9g",
                          pool ? pool->ElementName(i) : absl::StrCat("[", c.offsets[i], "]"),
                          c.moment_before[i], g2, c.moment_after[i],
                          replay.beta2 * c.moment_before[i] + (1 - replay.beta2) * g2));
    }
    *found.verdict().mutable_details() = Describe(c, f);
    return found.Take();
  }

  static v1::Verdict Complete(const v1::UpdateConfig& config, const MomentReplay& replay,
                              v1::Verdict verdict) {
    Put(*verdict.mutable_details(), "replay", replay.arithmetic->name);
    Put(*verdict.mutable_details(), "beta2", replay.beta2);
    if (replay.beta2 != config.beta2())
      verdict.add_assumptions("beta2 is a customary value, found by replay");
    return verdict;
  }

  static google::protobuf::Struct Describe(const UpdateCase& c, const Falling& f) {
    google::protobuf::Struct details;
    Put(details, "dtype", DTypeName(c.moment_dtype));
    Put(details, "sampled", static_cast<double>(c.size()));
    Put(details, "informative", static_cast<double>(f.informative.size()));
    Put(details, "must_fall", static_cast<double>(f.all));
    Put(details, "fell", static_cast<double>(f.fell()));
    Put(details, "non_finite", static_cast<double>(f.non_finite));
    return details;
  }

  size_t elements_;
  double share_;
  UpdateWindow window_;
  UpdatePool pool_;
  MomentCourses courses_;  // judges moments in checkpoints
};

}  // namespace

CatalogueEntry moment_ratchet() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MomentRatchet>(options);
          }};
}

}  // namespace plumbline::rules
