#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/accumulation/accumulation.h"
#include "analysis/frame/frame.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/stale-gradient

The gradients are never cleared: each step adds its own to the gradient that the previous step has already used.

**Why.** Without `zero_grad` the optimizer follows the sum of all gradients of the run. After 100 steps whose
gradients agree it is 100 times too large; if they do not agree, the newest gradient is only a hundredth of the
sum. This is momentum without decay: the loss falls at first, then oscillates more and more, and looks like a
learning rate that is too high. Gradient clipping hides the size of the error, but the direction stays wrong.

**Bad.** `step 41 begins with the gradient that step 40 left: 128 of 128 elements that are not zero have the same bits`.

**Good.** The elements are zero, or there is no gradient.

**How to fix it.**
- PyTorch: `optimizer.zero_grad()` once per step, after `optimizer.step()` or before the first backward pass.
- Several optimizers: each clears its own parameters; `model.zero_grad()` clears all of the model.
- Parameters that no optimizer holds (added later, frozen by leaving them out): `p.requires_grad_(False)`, or clear them too.
- A buffer of one's own for gradients (`main_grad` in Megatron-LM, `param.main_grad.zero_()`): `zero_grad_buffer()`.

**What it checks.** At up to 128 elements of a parameter, what was in `.grad` when a step ended (what its optimizer
saw: clipped, unscaled) against what the first micro-batch of the next step finds there. `watch_accumulation`
records both (reductions of algorithm `left-gradient`: `inputs` what was left, `output` what was found) where the
weights were updated in between. A finding needs two steps of one rank in each of which at least 64 of these elements were
not zero, and every such element has the same bits. Records that hold running sums alone (dumps of reductions of algorithm
`accumulation`) show it if consecutive steps recorded the same elements: every step's first addend is the sum of the step
before, at 64 elements at least, and no step started from zero. That is reported at the end of the run, and assumes that each
step ends with an update.

*Several optimizers, each with a backward pass of its own*: `run.watch` reports the cosine between the gradients that the pass of another optimizer's
update has left in an optimizer's parameters, and those that its own pass adds (`left/cosine`, `left/share`; in passes 1, 2, 3, 4, 6, 8, 12, 16, ...). It does so
only where its own pass reaches no other optimizer's parameters, and none of its own that the other loss did not reach: otherwise several tasks share
a body, whose gradients add up on purpose (heads with optimizers of their own, gradient reversal). A warning, `heuristic`, if in 8 steps or more, and in
nine of ten of them, the cosine is -0.3 or below and the part that was left has 5 % of the norm of the other: in a game (GAN, actor and critic) one
side is trained against itself.

**Strength.** `proved`: the bits are the same, and the weights moved in between (of sums alone: that they did is an assumption). For
several optimizers `heuristic`, its rates simulated (`bench/trainer/sides_rates.py`, 64 steps):

| trainer | runs | warned |
|---|---|---|
| games whose sides are cleared (4 losses, 3 architectures), actors and critics | 650 | 0 |
| tasks that share a body: free, alike, opposed, gradient reversal; 2 and 3 optimizers | 400 | 0 |
| a body that a head's loss and one of its own train (L2, sparse, alike, small) | 800 | 0 (6 at three quarters of the steps, 1 of them at -0.4) |
| not cleared, fully connected: cross-entropy, hinge, Wasserstein, least squares | 50 each | 26, 10, 10, 0 |
| not cleared, with norms: the same | 50 each | 36, 42, 43, 4 |
| not cleared, convolutions: the same; an actor and its critic | 50 each | 2, 1, 1, 0; 1 |

**Inconclusive when** no two consecutive steps were observed with an update between them, or recorded sums at the same
elements, fewer than 64 of the
elements were not zero, only one step was looked at, all values are NaN or infinite, or something changed the gradient
between the steps without clearing it.

**Reasons.** `changed`: the first addend is not the gradient left by the step before;
`not-looked`: the gradient between two steps was not observed; `malformed`: the gradients before and
after differ in shape or dtype, or are empty; `one-step`: one step started with the gradient of the previous step; a
second one would prove the fault; `poisoned`: gradients are NaN or infinite; `few-elements`: too few elements to
compare; `few-steps`: fewer than 8 steps were looked at.

**What it cannot see.** Parameters that `watch_accumulation` does not watch (16, the largest); weights that
are written without torch's knowledge (`p.data.copy_(master)`): then the update in between is not visible. Sums over
several steps of the trainer's count are not a fault, and are not reported: there is no update in between.

Of several optimizers it finds only sides whose two losses oppose each other at the weights, and reports nothing about
the others. Least squares (LSGAN): 4 of 150 uncleared games were found, of cross-entropy 64 of 150. Convolutions: 4 of
200, whatever the loss. An actor that its critic's loss reaches: 1 of 50. So no finding does not show that the sides are
cleared. Check that each optimizer's `zero_grad` runs directly before the backward pass of its own loss.

**Cost.** 128 elements a parameter, copied at the end of a step whose next one is observed.

**Sources.** PyTorch, "Zeroing out gradients", tutorials; `torch.Tensor._version` shows an update.
)page";

constexpr RuleInfo kInfo = {"precision/stale-gradient",
                            "gradients of the previous step are not cleared",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

constexpr uint64_t kFewSteps = 2;

// The state of one parameter, over all its ranks and steps.
struct Parameter {
  struct Stale {
    uint64_t steps = 0;
    int64_t step_first = 0;
    int64_t step_last = -1;
    void Persist(Archive& a) { a(steps, step_first, step_last); }
  };
  std::map<uint32_t, Stale> stale;         // by rank
  std::map<uint32_t, CarriedSum> carried;  // kept for the first ranks only
  std::set<uint32_t> ranks;
  uint64_t looked = 0;  // number of (rank, step) pairs with a record
  uint64_t cleared = 0;
  uint64_t few = 0;
  uint64_t changed = 0;
  uint64_t poisoned = 0;
  uint64_t malformed = 0;
  int64_t step_first = 0;
  int64_t step_last = 0;
  bool reported = false;
  void Persist(Archive& a) {
    a(stale, carried, ranks, looked, cleared, few, changed, poisoned, malformed);
    a(step_first, step_last, reported);
  }

  void See(const SiteStep& step, uint32_t rank) {
    if (ranks.empty()) step_first = step.step;
    step_last = std::max(step_last, step.step);
    ranks.insert(rank);
  }
};

class StaleGradient : public ScalarRule {
 public:
  explicit StaleGradient(const Options& /*options*/) {}

  bool ReadsScalar(const v1::Site& site) const override { return LeftCourse::Reads(site.op()); }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    for (const Item& item : step.items) {
      if (item.evidence->has_scalar() && ReadsScalar(step.site)) {
        sides_[{step.role, item.source->rank()}].Take(step.step, step.site.op(),
                                                      item.evidence->scalar().value());
      }
      if (!item.evidence->has_reduction()) continue;
      const v1::Reduction& reduction = item.evidence->reduction();
      const bool left = reduction.call().algorithm() == "left-gradient";
      if (!left && reduction.call().algorithm() != "accumulation") continue;
      Parameter& parameter = parameters_[{step.role, step.site.layer(), step.site.op()}];
      parameter.See(step, item.source->rank());
      if (left) Take(step, item, parameter, out);
    }
    TakeSums(step);
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (auto& [key, sides] : sides_) {
      if (key.first != step.role) continue;
      if (auto verdict = sides.Judge(key.second)) out.Add(*std::move(verdict));
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, sides] : sides_) {
      if (auto verdict = sides.Rest(key.second)) out.Add(*std::move(verdict));
    }
    for (const auto& [key, parameter] : parameters_) {
      if (parameter.reported) continue;
      if (const CarriedSum* carried = AlwaysCarried(parameter)) {
        out.Add(CarriedOver(key, parameter, *carried));
        continue;
      }
      v1::Verdict verdict = Rest(parameter);
      *verdict.mutable_details() = Describe(parameter);
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), parameter.step_first,
               parameter.step_last, parameter.ranks);
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(2, 1);
    archive(parameters_);
    if (version >= 2) archive(sides_);
  }

 private:
  using Key = std::tuple<v1::Role, std::string, std::string>;

  void TakeSums(const SiteStep& step) {
    constexpr size_t kMostRanks = 16;
    uint64_t more = 0;
    for (const Accumulation& sum : DecodeAccumulations(step, &more)) {
      if (!sum.problem.empty() || sum.average) continue;
      Parameter& parameter = parameters_[{step.role, step.site.layer(), step.site.op()}];
      parameter.See(step, sum.rank);
      if (parameter.carried.size() >= kMostRanks && !parameter.carried.contains(sum.rank)) continue;
      parameter.carried[sum.rank].Take(step.step, sum);
    }
  }

  static bool Always(const CarriedSum& sum) {
    return sum.steps >= kFewSteps && sum.anew == 0 && sum.gaps == 0;
  }

  // Returns a sum that always continues across updates. If leftover gradients were observed
  // directly, they decide instead, so returns nullptr.
  static const CarriedSum* AlwaysCarried(const Parameter& parameter) {
    if (parameter.looked > 0) return nullptr;
    for (const auto& [rank, carried] : parameter.carried) {
      if (Always(carried)) return &carried;
    }
    return nullptr;
  }

  static v1::Verdict CarriedOver(const Key& key, const Parameter& parameter,
                                 const CarriedSum& carried) {
    std::set<uint32_t> ranks;
    for (const auto& [rank, of_rank] : parameter.carried) {
      if (Always(of_rank)) ranks.insert(rank);
    }
    FindingBuilder found = Begin(carried.steps, carried.non_zero);
    found
        .Explain(
            absl::StrFormat("On rank %d the first addend of each of %d steps (the first is step "
                            "%d) is the sum of the step before: all %d non-zero elements recorded "
                            "in both have the same bits. The gradients are never cleared.",
                            *ranks.begin(), carried.steps, carried.step_first, carried.non_zero))
        .Witness("step", static_cast<double>(carried.step_first))
        .Witness("rank", *ranks.begin())
        .Assume(
            "each recorded step ends with an update (accumulation over steps on purpose looks the "
            "same)")
        .At(std::get<1>(key), std::get<2>(key), carried.step_first, carried.step, ranks);
    *found.verdict().mutable_details() = Describe(parameter);
    return found.Take();
  }

  // Builds the part of the finding that both ways of observation share.
  static FindingBuilder Begin(uint64_t steps, size_t non_zero) {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(kInfo.title)
        .Cause("not-cleared", 1)
        .Measured("steps that start with the gradient of the previous step",
                  static_cast<double>(steps), "steps")
        .Threshold(static_cast<double>(kFewSteps), "steps, with at least 64 equal elements each")
        .Fix("Call optimizer.zero_grad() once per step (for each optimizer), or model.zero_grad().")
        .Samples(non_zero);
    return found;
  }

  static void Take(const SiteStep& step, const Item& item, Parameter& parameter, VerdictSink& out) {
    ++parameter.looked;
    const v1::ReductionSample& sample = item.evidence->reduction().sample();
    const LeftGradient seen = LookAtLeft(sample);
    switch (seen.kind) {
      case LeftGradient::Kind::kCleared:
        ++parameter.cleared;
        return;
      case LeftGradient::Kind::kFew:
        ++parameter.few;
        return;
      case LeftGradient::Kind::kChanged:
        ++parameter.changed;
        return;
      case LeftGradient::Kind::kPoisoned:
        ++parameter.poisoned;
        return;
      case LeftGradient::Kind::kMalformed:
        ++parameter.malformed;
        return;
      case LeftGradient::Kind::kStale:
        break;
    }
    Parameter::Stale& stale = parameter.stale[item.source->rank()];
    if (stale.step_last >= step.step) return;  // a restart repeats the step
    if (stale.steps++ == 0) stale.step_first = step.step;
    stale.step_last = step.step;
    if (stale.steps < kFewSteps || parameter.reported) return;
    parameter.reported = true;
    out.Add(Found(step, item, seen, stale, parameter));
  }

  static v1::Verdict Found(const SiteStep& step, const Item& item, const LeftGradient& seen,
                           const Parameter::Stale& stale, const Parameter& parameter) {
    const uint32_t rank = item.source->rank();
    std::set<uint32_t> ranks;
    for (const auto& [other, of_rank] : parameter.stale) ranks.insert(other);
    FindingBuilder found = Begin(stale.steps, seen.non_zero);
    found
        .Explain(absl::StrFormat(
            "On rank %d, step %d starts with the gradient of the previous step, which the "
            "optimizer has already used: all %d non-zero sampled elements have the same bits. This "
            "was so in %d steps, first in step %d: the gradients are never cleared.",
            rank, step.step, seen.non_zero, stale.steps, stale.step_first))
        .Witness("element", static_cast<double>(seen.element))
        .Witness("value", seen.example)
        .Witness("step", static_cast<double>(step.step))
        .Witness("rank", rank)
        .At(step.site.layer(), step.site.op(), stale.step_first, step.step, ranks);
    *found.verdict().mutable_details() = Describe(parameter);
    return found.Take();
  }

  static bool BegunAnew(const Parameter& p) {
    return std::any_of(p.carried.begin(), p.carried.end(),
                       [](const auto& of_rank) { return of_rank.second.anew >= kFewSteps; }) &&
           std::all_of(p.carried.begin(), p.carried.end(),
                       [](const auto& of_rank) { return of_rank.second.steps == 0; });
  }

  static v1::Verdict Rest(const Parameter& p) {
    const bool one_stale = !p.stale.empty();
    if (p.looked == 0 && BegunAnew(p))
      return Pass("each recorded sum starts with its own gradient");
    if (p.looked == 0)
      return Inconclusive("not-looked: the gradient between two steps was not observed");
    if (p.malformed == p.looked)
      return Inconclusive(
          "malformed: the gradients before and after differ in shape or dtype, or are empty");
    if (one_stale)
      return Inconclusive(
          "one-step: one step started with the gradient of the previous step; a second one would "
          "prove the fault");
    if (p.changed > 0)
      return Inconclusive(
          "changed: steps started with a gradient that is neither zero nor that of the previous "
          "step");
    if (p.cleared > 0) return Pass("each observed step started with a cleared gradient");
    if (p.poisoned > 0)
      return Inconclusive("poisoned: all gradients between steps are NaN or infinite");
    return Inconclusive(absl::StrCat("few-elements: fewer than ", LeftGradient::kFewElements,
                                     " sampled elements were not zero"));
  }

  static google::protobuf::Struct Describe(const Parameter& p) {
    google::protobuf::Struct details;
    Put(details, "looked", static_cast<double>(p.looked));
    Put(details, "cleared", static_cast<double>(p.cleared));
    return details;
  }

  std::map<Key, Parameter> parameters_;
  std::map<std::pair<v1::Role, uint32_t>, LeftCourse> sides_;
};

}  // namespace

CatalogueEntry stale_gradient() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<StaleGradient>(options);
          }};
}

}  // namespace plumbline::rules
