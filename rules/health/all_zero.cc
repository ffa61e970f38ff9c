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
#include "absl/strings/str_split.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/all-zero

A gradient, an activation or a weight is zero in every element, step after step.

**Why.** If the activations of a layer are all zero, the layers before it learn nothing: a ReLU with only negative inputs passes no gradient back, so it never recovers. If layer 20 of
32 dies, the 19 layers before it cost time but do not change. The loss still falls, because the other 12 layers learn.

**Bad.** `blocks.3.mlp.0.weight: the gradient is 0 in all of 65,536 elements in 10 observed steps (16 to 52)`

**Good.** Heads that are drawn by chance; a hinge loss that is 0; an auxiliary loss that joins at step 60; the last bias of a critic.

**How to fix it.**
- A gradient: follow the graph from the loss, and look for `detach()`, `no_grad`, a mask that hides everything, a loss weight of 0, a branch that is never taken; in fp16 an underflow
  that a loss scale would lift (`torch.amp.GradScaler`).
- An activation: a smaller learning rate or a warm-up keeps ReLUs alive; GELU, SiLU or LeakyReLU also have a gradient for negative inputs.
- A weight: look for what resets it (a weight decay of 1/rate, an average that copies zeros, a checkpoint that was loaded in part).
- Zero on purpose: `--set health/all-zero.zero='adapter.*'` (again for more).

**What it checks.** Where the tensors of a run are observed: the number of zeros in gradients, activations, weights and buffers, each rank by itself. A step counts where the tensor has
elements, all of them finite, in every call of the step. Ten such steps in a row without one element that is not zero are a finding of an activation, a weight or a buffer. A weight or
buffer counts only once it was seen not zero, or an update of it was: tensors that are initialised to zero (a bias, the second factor of LoRA, a gain of a residual branch) do not count
until they first change. A gradient or activation that never was anything else counts only in steps with a learning rate above 0, if one was recorded: before the first update, zero
factors make zero gradients.

*A gradient* is observed only in some steps, and healthy tensors are not used in each (one of twelve heads a step). Of n looks before the row, from the first on in which it was not
zero, z were zero; a row of m zeros has the chance prod (z + 1/2 + i) / (n + 1 + i), i < m (Jeffreys' prior). A finding needs this below 10^-4 over all gradients of the run (and all
looks at one, once it was zero now and then), m of at least 10, and a row more than twice as long as any before it. Six zeros are enough after at least ten non-zero observations that
span four times as many steps. Where another tensor began to have a gradient meanwhile (parts that take turns), the row must span 100 steps. A gradient that was not zero in fewer than
ten looks, or never, needs ten zeros over 100 steps in which its weight, where it is observed, did not change but as decay changes it (its largest and its mean magnitude by one factor,
within 5 % and a unit in the last place), and a row that the rate of no tensor that is zero now and then explains. Steps do not count in which all gradients of the rank are zero (two at
least) and its loss is 0 or at its least: it is minimised. Nor does a bias while its layer's weight has a gradient: where a loss compares means it is 0 by algebra.

**Strength.** `proved`: the counts are exact.

**Inconclusive when** fewer than ten steps were observed, a gradient is zero now and then (or its weight changes between looks), is zero with all others or is a bias's, the tensor is
zero since it was first seen (it may have been made so), its values are NaN or infinite, the rate is 0, or the tensor is one expert's: without tokens it has no gradient, and
`health/dead-expert` judges its load.

**What it cannot see.** Tensors that are not observed; one that is zero in most elements and not in all; a gradient that is absent (`None`) instead of zero.

**Cost.** Some 160 bytes a tensor and rank.

**Sources.** Lu et al., "Dying ReLU and Initialization", 2019; SageMaker Debugger's rules `AllZero` and `DeadRelu`, which report after one step.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "zero",
     .type = OptionInfo::Type::kText,
     .unit = "patterns of names",
     .default_value = "",
     .reason = "tensors that are zero on purpose are listed here"},
};

constexpr RuleInfo kInfo = {
    "health/all-zero", "a tensor is all zero", v1::LEVEL_WARNING, "0.1.0", kPage, kOptions};

constexpr uint64_t kZeroSteps = ZeroCourse::kSteps;
constexpr size_t kMostZeroTensors = size_t{1} << 18;  // one for each rank of a site

class AllZero : public ScalarRule {
 public:
  explicit AllZero(const Options& options)
      : roles_(options.roles()),
        zero_(absl::StrSplit(options.Text("zero"), absl::ByAnyChar(" ,\n"), absl::SkipEmpty())) {}

  bool ReadsScalar(const v1::Site& site) const override {
    const SeriesRole role = roles_.Of(site.op());
    return role == SeriesRole::kRate || role == SeriesRole::kLoss;
  }

  bool judges_unseen_steps() const override { return false; }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const SeriesRole role = known_.Of(step, [&] { return roles_.Of(step.site.op()); });
    for (const Item& item : step.items) {
      const v1::Evidence& evidence = *item.evidence;
      if (evidence.has_scalar()) {
        if (role == SeriesRole::kRate) TakeRate(evidence.scalar().value());
        if (role == SeriesRole::kLoss) losses_.Take(step, item);
      } else if (evidence.has_tensor()) {
        looks_.Take(step, item);
      } else if (evidence.has_update() && evidence.update().summary().applied_l1() > 0) {
        updated_.insert({step.site.layer(), item.source->rank()});
      }
    }
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (const auto& [place, looks] : looks_.open()) {
      ZeroSite* site = Find(step, place, looks.role);
      if (site == nullptr) continue;
      site->step_last = std::max(site->step_last, step.step);
      for (const auto& [rank, look] : looks.ranks) {
        ZeroCourse* run = FindRank(*site, rank);
        if (run == nullptr) continue;
        if (looks.role == "gradient") {
          if (step_first_ < 0) step_first_ = step.step;
          TakeGradient(step, place.first, rank, look, *run);
        } else {
          Take(step, *site, look, updated_.contains({place.first, rank}), *run);
        }
      }
    }
    for (const auto& [place, looks] : looks_.open()) {
      if (ZeroSite* site = Find(step, place, looks.role)) JudgeSite(step, place, *site, out);
    }
    looks_.Clear();
    updated_.clear();
    rate_.reset();
    losses_.Close();
    worst_.reset();
  }

  const void* judges_apart() const override { return this; }
  // From steps without a tensor, takes only the losses.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    for (const ScalarColumn& column : rows.columns) {
      const SiteStep& any = column.any();
      const SeriesRole role = known_.Of(any, [&] { return roles_.Of(any.site.op()); });
      if (role == SeriesRole::kLoss) losses_.TakeRows(column, first, rows.size());
    }
    return rows.size() - first;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, site] : sites_) {
      if (site.reported) continue;
      v1::Verdict verdict = Rest(std::get<1>(key), site);
      std::vector<uint32_t> ranks;
      for (const auto& [rank, run] : site.ranks) ranks.push_back(rank);
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), site.step_first, site.step_last, ranks);
      out.Add(std::move(verdict));
    }
  }

  // looks_, updated_, rate_ and worst_ are empty between steps. known_ is recomputed after a
  // restore.
  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(sites_, kept_, gradients_, step_first_, switched_, losses_);
  }

 private:
  using Place = ZeroStep::Place;

  // Takes the largest rate of the step.
  void TakeRate(double value) {
    if (std::isfinite(value)) rate_ = std::max(rate_.value_or(0), std::fabs(value));
  }

  bool OnPurpose(const std::string& layer) const {
    return std::any_of(zero_.begin(), zero_.end(),
                       [&](const std::string& glob) { return GlobMatch(glob, layer); });
  }

  ZeroSite* Find(const StepEnd& step, const Place& place, const std::string& role) {
    const auto key = std::tuple(step.role, place.first, place.second);
    if (const auto found = sites_.find(key); found != sites_.end()) return &found->second;
    if (kept_ >= kMostZeroTensors || OnPurpose(place.first)) return nullptr;
    ZeroSite& site = sites_[key];
    site.role = role;
    site.step_first = site.step_last = step.step;
    return &site;
  }

  // Returns nullptr if the limit is reached.
  ZeroCourse* FindRank(ZeroSite& site, uint32_t rank) {
    if (const auto found = site.ranks.find(rank); found != site.ranks.end()) return &found->second;
    if (kept_ >= kMostZeroTensors) return nullptr;
    ++kept_;
    return &site.ranks[rank];
  }

  // Returns false if there is no value, or one is NaN or infinite.
  static bool Counts(const ZeroLook& look, ZeroCourse& run) {
    if (look.poisoned) {
      ++run.poisoned;
      run.zeros = 0;
      return false;
    }
    if (look.elements) run.count = look.count;
    return look.elements;
  }

  void TakeGradient(const StepEnd& step, const std::string& layer, uint32_t rank,
                    const ZeroLook& look, ZeroCourse& run) {
    const bool first = run.steps + run.poisoned + run.resting + run.at_rest + run.by_algebra == 0;
    gradients_ += first ? 1 : 0;
    if (const ZeroLook* w = looks_.Find(layer, "weight", rank)) run.TakeWeight(step.step, *w);
    if (!Counts(look, run)) return;
    if (!look.zero) {
      const bool starts = first ? step.step > step_first_ : run.zeros >= 3 && !run.mixed();
      if (starts && !IsOfExpert(layer)) switched_ = step.step;
      return run.TakeNonZero(step.step);
    }
    if (!run.moved && rate_ && !(*rate_ > 0)) {
      ++run.resting;
    } else if (losses_.AtLeast() && looks_.AllGradientsZero(rank)) {
      ++run.at_rest;
    } else if (looks_.IsBiasOfLiving(layer, rank)) {
      ++run.by_algebra;
    } else {
      run.TakeZero(step.step);
    }
  }

  // Returns the highest rate of zeros of a gradient that is zero in some steps; 0 if there is none.
  double Worst() {
    if (worst_) return *worst_;
    worst_ = 0;
    for (const auto& [key, site] : sites_) {
      if (site.role != "gradient" || IsOfExpert(std::get<1>(key))) continue;
      for (const auto& [rank, run] : site.ranks) {
        if (run.mixed()) worst_ = std::max(*worst_, run.rate());
      }
    }
    return *worst_;
  }

  bool IsFound(const StepEnd& step, const ZeroSite& site, const ZeroCourse& run) {
    if (site.role != "gradient") return run.zeros >= kZeroSteps;
    if (run.Stopped(step.step, gradients_, switched_)) return true;
    return run.zeros >= kZeroSteps && run.NeverUsed(step.step, gradients_, Worst());
  }

  void Take(const StepEnd& step, const ZeroSite& site, const ZeroLook& look, bool updated,
            ZeroCourse& run) const {
    run.moved |= updated;
    if (!Counts(look, run)) return;
    if (!look.zero) {
      ++run.steps;
      run.zeros = 0;
      run.moved = true;
      return;
    }
    if (!run.moved && rate_ && !(*rate_ > 0)) {
      ++run.resting;
      return;
    }
    ++run.steps;
    if (!run.moved && !IsComputed(site.role)) return;
    if (run.zeros++ == 0) run.zeros_first = step.step;
  }

  void JudgeSite(const StepEnd& step, const Place& place, ZeroSite& site, VerdictSink& out) {
    if (site.reported || (IsComputed(site.role) && IsOfExpert(place.first))) return;
    std::vector<uint32_t> ranks;
    const ZeroCourse* shown = nullptr;
    for (const auto& [rank, run] : site.ranks) {
      if (!IsFound(step, site, run)) continue;
      ranks.push_back(rank);
      if (shown == nullptr) shown = &run;
    }
    if (shown == nullptr) return;
    site.reported = true;
    out.Add(Found(step, place, site, *shown, ranks));
  }

  static v1::Verdict Found(const StepEnd& step, const Place& place, const ZeroSite& site,
                           const ZeroCourse& shown, const std::vector<uint32_t>& ranks) {
    const std::string what = site.role.empty() ? "buffer" : site.role;
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found
        .Title(what == "activation" ? "an activation is all zero"
                                    : absl::StrCat("a ", what, " is all zero"))
        .Explain(absl::StrFormat("%s: the %s is 0 in all %d elements in %d consecutive observed "
                                 "steps (%d to %d) on %s%s.",
                                 place.first, what, shown.count, shown.zeros, shown.zeros_first,
                                 step.step, RankWords(ranks),
                                 shown.moved ? ", and it was not 0 before" : ""))
        .Cause(CauseOf(site.role), 0.9)
        .Measured("consecutive observed steps with only zeros", static_cast<double>(shown.zeros),
                  "steps")
        .Threshold(static_cast<double>(std::min(shown.zeros, kZeroSteps)),
                   "consecutive observed steps")
        .Fix(FixOf(site.role))
        .Samples(shown.zeros)
        .Witness("elements", static_cast<double>(shown.count))
        .Witness("zeros", static_cast<double>(shown.count))
        .Witness("first_step", static_cast<double>(shown.zeros_first))
        .At(place.first, place.second, shown.zeros_first, step.step, ranks);
    if (IsComputed(site.role))
      found.Assume("the tensor contributed to the loss in these steps (option zero)");
    return found.Take();
  }

  static const char* CauseOf(std::string_view role) {
    if (role == "gradient") return "no-gradient";
    return role == "activation" ? "dead-activation" : "reset-to-zero";
  }

  static const char* FixOf(std::string_view role) {
    if (role == "gradient")
      return "Follow the graph from the loss to it: detach(), a mask, a weight of 0, a dead ReLU, "
             "or fp16 without a loss scale.";
    if (role == "activation")
      return "Lower the learning rate or warm up, or use an activation with a gradient everywhere "
             "(GELU, SiLU, LeakyReLU).";
    return "Find the code that resets it: weight decay of 1/learning rate, an average that copies "
           "zeros, a checkpoint that was loaded in part.";
  }

  // Returns the verdict on a site without a finding: the worst case over the ranks.
  static v1::Verdict Rest(const std::string& layer, const ZeroSite& site) {
    uint64_t steps = 0, zeros = 0, poisoned = 0, resting = 0, at_rest = 0, by_algebra = 0;
    bool all_moved = true, used = false;
    for (const auto& [rank, run] : site.ranks) {
      steps = std::max(steps, run.steps);
      zeros = std::max(zeros, run.zeros);
      poisoned += run.poisoned;
      resting += run.resting;
      at_rest += run.at_rest;
      by_algebra += run.by_algebra;
      used |= run.used_step > run.zeros_first;
      all_moved &= run.moved;
    }
    google::protobuf::Struct details;
    Put(details, "steps", static_cast<double>(steps));
    if (all_moved && zeros == 0 && steps > 0)
      return Pass("the tensor has elements that are not zero", std::move(details));
    if (zeros >= kZeroSteps && IsComputed(site.role) && IsOfExpert(layer))
      return Inconclusive("expert: it is zero without tokens; health/dead-expert judges the load",
                          std::move(details));
    const bool row = site.role == "gradient" && zeros >= kZeroSteps;
    const char* why = nullptr;
    if (by_algebra >= ZeroCourse::kFewSteps) {
      why = "bias: its layer's weight has a gradient; a loss over means gives a bias none";
    } else if (at_rest >= ZeroCourse::kFewSteps) {
      why = "all-at-once: all gradients are zero and the loss is at its minimum";
    } else if (row) {
      why = used ? "used-between: its weight changes between observations, and weight decay does "
                   "not explain the change"
                 : "now-and-then: too few observations show that the tensor is no longer used";
    }
    if (why != nullptr) return Inconclusive(why, std::move(details));
    if (steps == 0 && poisoned > 0)
      return Inconclusive("poisoned: NaN or infinite values", std::move(details));
    if (!all_moved && !IsComputed(site.role))
      return Inconclusive(
          "made-as-zero: the tensor is zero since the first observation, and no update of it",
          std::move(details));
    if (!all_moved && resting > 0)
      return Inconclusive("rate-zero: the tensor is zero and its learning rate is 0",
                          std::move(details));
    if (steps >= kZeroSteps && all_moved)
      return Pass("the tensor was not zero in at least one of ten steps", std::move(details));
    return Inconclusive(
        absl::StrCat("few-steps: fewer than ", kZeroSteps, " in which the tensor is zero"),
        std::move(details));
  }

  const SeriesRoles roles_;  // stated by the user
  SiteMemo<SeriesRole> known_;
  std::vector<std::string> zero_;
  ZeroStep looks_;                                      // of this step
  std::set<std::pair<std::string, uint32_t>> updated_;  // layer and rank, of this step
  std::optional<double> rate_;                          // of this step
  std::map<std::tuple<v1::Role, std::string, std::string>, ZeroSite> sites_;
  uint64_t kept_ = 0;       // tensors, one for each rank
  uint64_t gradients_ = 0;  // number of gradients among them
  int64_t step_first_ = -1;
  int64_t switched_ = -1;  // newest step in which a gradient appeared late, or became non-zero
  std::optional<double> worst_;  // cached while a step is judged
  LeastLosses losses_;
};

}  // namespace

CatalogueEntry all_zero() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<AllZero>(options);
          }};
}

}  // namespace plumbline::rules
