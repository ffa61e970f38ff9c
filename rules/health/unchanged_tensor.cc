#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/frame/frame.h"
#include "analysis/replicas/replicas.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/unchanged-tensor

A weight does not change, although it has a gradient and the learning rate is not zero.

**Why.** The optimizer does not hold the weight: the optimizer was made before a layer was added, replaced or moved, or from a list that leaves the layer out. The backward pass still
computes its gradient. An untrained head of 50,000 by 4,096 is 200 million random parameters, to which the rest of the model adapts: the loss falls, and ends higher.

**Bad.** `head.weight: the same bits over 3 updates (steps 4 to 16), gradient up to 0.02, rate 0.001; of the others 23 change`.

**Good.** Weights that change; frozen ones without a gradient (`requires_grad_(False)`); in checkpoints what no optimizer holds (bases of LoRA, buffers), and moments that are zero or
stand still (frozen on the way).

**How to fix it.**
- Make the optimizer after the model is whole, on its device and wrapped: `AdamW(model.parameters())`; a layer that comes later by `optimizer.add_param_group`.
- `set(id(p) for g in optimizer.param_groups for p in g["params"])` against `model.named_parameters()` shows the missing parameters.
- In checkpoints: the optimizer holds the tensor and moves it, and another copy is saved. Make the optimizer after `model.to(...)` and after wrapping; copy fp32 masters back after each step; save what is trained.
- If rate times gradient is below half the last place of the weight (advice `below-last-place`), plain descent in bf16 rounds each update away: fp32 masters, or a higher rate.
- Frozen on purpose: `p.requires_grad_(False)`, which saves its gradient too; or declare it: `--set health/unchanged-tensor.frozen='encoder.*'` (again for more).

**What it checks.** Where the tensors of a run are observed: the 128-bit digest of a weight (role `weight`), the gradient of the same name (role `gradient`) and the learning rates
recorded in that step (`lr`, `lr.1`, ...). An update counts where the gradient is finite and not zero, every recorded rate is above 0, a step of that rate is larger than the last place
of the weight's largest element, and the gradient is more than a rounding error: where four tensors or more have one in that step, its largest element is above 2^-20 (16-bit weights:
2^-12) of their median. The bias of an attention's keys has such a gradient, which is 0 by symmetry, as has a bias in front of a batch norm. The update is without effect where the
digest is that of the observation before. A finding needs 3 in a row, in each of which another weight changed, or 8 where no weight of the run does.

In checkpoints the optimizer's state replaces the gradient: a first moment (`exp_avg`, `momentum_buffer`) that is not zero and is another one than in the checkpoint before shows that
the optimizer stepped, by the rate of the weight's own parameter group. Three checkpoints with the same bits are a finding.

*A folder of checkpoints* also shows tensors that are not what was trained. Each of these is a warning:
- *earlier bits*: tensors return to the digest of an earlier checkpoint after other contents (A B C B'), and at least 16 of their sampled elements differ from the checkpoint before, while other
  weights are new. If no floating-point weight of the checkpoint is new, whatever its counters, its best weights may have been restored: a note, unless its content states the earlier step, too.
- *a rank's file of the checkpoint before*: all of its tensors stand while those of the same names change on other ranks, and they go on afterwards, or the content states the earlier step.
- *a copied rank*: all matrices of two ranks are equal, and in the checkpoint before their values were unrelated. A note if the rank goes on from these values, apart from the other, in the next one (population-based training).
- *another step inside*: the content of one file states an earlier step, and in the checkpoints before and after it the right one. (Counters that begin again at a resume stay silent.)
- *a replaced weight*: a matrix of steady correlation (above 0.8 from checkpoint to checkpoint) becomes zero, its own transpose, another matrix of its shape, its negative, or values unrelated to it
  (below 0.2), while three others at least are steady and at most a quarter is suspect. Silent: heads and factors of LoRA that begin anew, a weight whose second moment was reset with it, masks of pruning. Unless it became zero, a note where the second moment does not show
  that training went on: it changed and did not fall; for unrelated values, each element also is at least what beta2 leaves of it, and beta2 leaves half of it (an interval of up to 690 steps at 0.999).
- *a gain that grows* by one factor per step (even within 12 %) over six checkpoints, 5 % in each at least.
- *adapters* without effect (all `lora_B` are zero) or that never changed, in three checkpoints or more whose rate is not 0, to the newest one.
- *a weight that changes beyond decay* while both of its moments are zero in three checkpoints, from the first on.
- *weights without elements*: half of them, or those that had elements before (ZeRO-3 saved without gathering).

**Strength.** `proved`: digest, gradient and rate are what was observed. A replaced weight that is not zero, and a gain that grows, are `heuristic`: they rest on sampled elements and limits of ours. None of
572 healthy folders of 26 kinds has a finding (`tests/audit/checkpoint/learning_test.py`).

**Inconclusive when** no rate was recorded, one of them is 0, fewer than 3 updates were observed, values are NaN or infinite (of a weight that changes otherwise: for those steps, in addition to the pass of the others), a step of that rate is below the weight's last place, the gradient is a rounding error, no weight of the run changes and 8 updates were not seen, a
tensor whose elements are all one number stands (at a bound that clamps it), checkpoints keep no optimizer's state, or one whose parameters could not be named, or an update of the
tensor was observed: then the optimizer holds it, and `precision/lost-update` judges the update.

**What it cannot see.** Parameter groups after the fourth, whose rate `run.watch` does not record; a weight that changes only by decay; ranks after the first that reports a tensor (shards of one name). In checkpoints: one row among many that grows, and a rank that is stale by one checkpoint in the newest one (its content states no step).

**Cost.** Some 100 bytes a weight; the digests are there. Of checkpoints 2 KB of samples a weight and rank, and 24 bytes for each of its newest 64 contents.

**Sources.** Karpathy, "A Recipe for Training Neural Networks", 2019: verify that every parameter trains.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "frozen",
     .type = OptionInfo::Type::kText,
     .unit = "patterns of names",
     .default_value = "",
     .reason = "frozen tensors have no gradient; others that must not change are listed here"},
};

constexpr RuleInfo kInfo = {"health/unchanged-tensor",
                            "a tensor with a gradient does not change",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr uint64_t kUpdates = 3;
constexpr uint64_t kUpdatesAlone = 8;  // if nothing else shows that the optimizer stepped
constexpr uint64_t kCheckpoints = WeightCourse::kCheckpoints;  // if moments change
constexpr std::string_view kHeld = "held", kNamed = "optimizer.named";
constexpr size_t kMostWeights = size_t{1} << 18;

// "lr", "lr.1", ...: the rate that run.watch reports for each parameter group.
bool IsRate(std::string_view op) {
  return op == "lr" || op == "learning_rate" || op.starts_with("lr.");
}

class UnchangedTensor : public ScalarRule {
 public:
  explicit UnchangedTensor(const Options& options)
      : frozen_(
            absl::StrSplit(options.Text("frozen"), absl::ByAnyChar(" ,\n"), absl::SkipEmpty())) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return IsRate(site.op()) || site.op() == kHeld || site.op() == kNamed ||
           SavedWeights::ReadsScalar(site);
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    saved_.Take(step);
    for (const Item& item : step.items) {
      const v1::Evidence& evidence = *item.evidence;
      if (evidence.has_scalar()) TakeScalar(step.site, evidence.scalar().value());
      if (evidence.has_tensor()) open_[step.site.layer()].Take(step.site.op(), item);
      if (evidence.has_update() && !IsAverage(evidence.update().config()) &&
          !IsAccumulation(evidence.update().config()))
        open_[step.site.layer()].updated = true;
    }
  }

  const void* judges_apart() const override { return this; }
  // Skips rows of scalars without tensors: a rate is only used with tensors of the same step.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    return rows.Has(kHeld) ? 0 : rows.size() - first;
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    saved_.Close(step, out);
    uint64_t changed = 0;
    for (const auto& [name, seen] : open_) changed += Changes(step, name, seen) ? 1 : 0;
    usual_.Take(open_);
    for (const auto& [name, seen] : open_) JudgeOne(step, name, seen, changed, out);
    open_.clear();
    rate_.reset();
    named_.reset();
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    saved_.Rest(out);
    for (const auto& [key, weight] : weights_) {
      if (weight.reported || !weight.HadGradient()) continue;
      v1::Verdict verdict = Rest(weight);
      // A pass does not cover steps with NaN. They get a separate verdict.
      const bool apart = weight.poisoned > 0 && verdict.kind() == v1::Verdict::KIND_PASS;
      Report(std::move(verdict), key.second, weight, weight.step_first,
             apart ? weight.judged_last : weight.step_last, out);
      if (apart) {
        Report(Inconclusive(absl::StrCat("poisoned: NaN or infinite values in ", weight.poisoned,
                                         weight.poisoned == 1 ? " step" : " steps")),
               key.second, weight, weight.poisoned_first, weight.poisoned_last, out);
      }
    }
  }

  // open_, rate_ and named_ are empty between steps. usual_ is recomputed in each step.
  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(4, 3);
    archive(weights_);
    if (version >= 4) saved_.Persist(archive);
  }

 private:
  // Takes the smallest value over parameter groups. NaN counts as 0.
  void TakeScalar(const v1::Site& site, double value) {
    const double number = std::isfinite(value) ? value : 0;
    if (IsRate(site.op())) rate_ = std::min(rate_.value_or(number), number);
    if (site.op() == kNamed) named_ = std::min(named_.value_or(number), number);
    if (site.op() == kHeld) {
      std::optional<double>& rate = open_[site.layer()].rate;
      rate = std::min(rate.value_or(number), number);
    }
  }

  WeightCourse* Find(const StepEnd& step, const std::string& name) {
    const auto found = weights_.find({step.role, name});
    return found == weights_.end() ? nullptr : &found->second;
  }
  bool Changes(const StepEnd& step, const std::string& name, const ObservedWeight& seen) {
    const WeightCourse* weight = Find(step, name);
    return weight != nullptr && seen.weight && weight->known && weight->attempt == step.attempt &&
           weight->rank == seen.rank && weight->digest != *seen.weight;
  }

  void JudgeOne(const StepEnd& step, const std::string& name, const ObservedWeight& seen,
                uint64_t changed, VerdictSink& out) {
    const bool frozen = std::any_of(frozen_.begin(), frozen_.end(),
                                    [&](const std::string& glob) { return GlobMatch(glob, name); });
    if (frozen) return;
    WeightCourse* weight = Find(step, name);
    if (weight == nullptr) {
      if (!seen.observed || weights_.size() >= kMostWeights) return;
      weight = &weights_[{step.role, name}];
      weight->step_first = step.step;
    }
    weight->held |= seen.updated;
    if (seen.poisoned) {
      if (weight->poisoned++ == 0) weight->poisoned_first = step.step;
      weight->poisoned_last = step.step;
    }
    if (!seen.observed) return;
    weight->step_last = std::max(weight->step_last, step.step);
    if (!seen.weight) {
      weight->known = false;  // NaN plus any update keeps its bits, so it is not compared
      weight->still = weight->next_to_other = weight->by_moment = weight->bare = 0;
      return;
    }
    Compare(step, seen, changed, *weight);
    const bool enough = weight->next_to_other >= kUpdates || weight->still >= kUpdatesAlone ||
                        weight->by_moment >= kCheckpoints - 1;
    if (!enough || weight->reported || weight->held) return;
    weight->reported = true;
    out.Add(Found(step, name, seen, *weight, changed));
  }

  void Compare(const StepEnd& step, const ObservedWeight& seen, uint64_t changed,
               WeightCourse& weight) const {
    const bool comparable =
        weight.known && weight.attempt == step.attempt && weight.rank == seen.rank;
    const bool same = comparable && weight.digest == *seen.weight;
    if (!same) {
      weight.still = weight.next_to_other = weight.by_moment = weight.bare = 0;
      weight.still_first = step.step;
    }
    const bool stepped = TakeMoment(seen, weight) && comparable;
    weight.digest = *seen.weight;
    weight.rank = seen.rank;
    weight.attempt = step.attempt;
    weight.known = true;
    if (!comparable || seen.poisoned) return;
    if (!seen.gradient && !stepped) {
      // If not all states have names, one of the unnamed ones may belong to this parameter.
      const bool open = named_ && *named_ < 1 && !seen.moment;
      weight.bare += same && open ? 1 : 0;
      return;
    }
    if (stepped && seen.one_value) {
      ++weight.clamped;
      return;
    }
    const std::optional<double> rate = seen.rate ? seen.rate : rate_;
    if (!rate) {
      ++weight.unrated;
      return;
    }
    if (!(*rate > 0)) {
      ++weight.resting;
      return;
    }
    if (!seen.Moves(*rate) || usual_.IsRounding(seen)) {
      ++weight.tiny;
      return;
    }
    ++weight.updates;
    weight.judged_last = step.step;
    if (!same) return;
    ++weight.still;
    weight.by_moment += stepped && !seen.gradient ? 1 : 0;
    weight.next_to_other += changed > 0 ? 1 : 0;
  }

  // Returns true if the optimizer stepped since the previous observation. A stored moment that does
  // not change belongs to a parameter without a gradient, for example one that was frozen later.
  static bool TakeMoment(const ObservedWeight& seen, WeightCourse& weight) {
    const bool known = std::exchange(weight.moment_known, seen.moment.has_value());
    if (!seen.moment || seen.moment_rank != seen.rank) return false;
    const bool other = weight.moment != *seen.moment;
    weight.moment = *seen.moment;
    return known && other && seen.moment_amax > 0;
  }

  v1::Verdict Found(const StepEnd& step, const std::string& name, const ObservedWeight& seen,
                    const WeightCourse& weight, uint64_t changed) const {
    const bool kept = !seen.gradient;  // the gradient is known from the optimizer's state
    const double rate = seen.rate.value_or(rate_.value_or(0));
    const bool lost = !kept && seen.IsLostIfPlain(rate);
    const char* cause = lost ? "below-last-place" : "not-in-optimizer";
    const std::string others =
        changed > 0 ? absl::StrCat("of the others ", changed, changed > 1 ? " change" : " changes")
                    : std::string("no other observed weight changes");
    const std::string digest = absl::StrFormat("%016x%016x", seen.weight->high, seen.weight->low);
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title(kept ? "a tensor that the optimizer updates does not change" : kInfo.title)
        .Explain(absl::StrFormat(
            "%s has the same bits (digest %s) over %d %s, steps %d to %d, though its %s (up to "
            "%.3g) and the rate is %.3g; %s.",
            name, digest, weight.still + (kept ? 1 : 0), kept ? "checkpoints" : "observed updates",
            weight.still_first, step.step,
            kept ? "first moment is not zero and changes" : "gradient is not zero",
            kept ? seen.moment_amax : seen.gradient_amax, rate, others))
        .Cause(kept ? "another-copy" : cause, lost ? 0.6 : 0.8)
        .Samples(weight.still)
        .Witness("digest", digest)
        .Witness(kept ? "moment_amax" : "gradient_amax",
                 kept ? seen.moment_amax : seen.gradient_amax)
        .Witness("rate", rate)
        .At(name, "weight", weight.still_first, step.step, std::vector<uint32_t>{weight.rank});
    if (kept) {
      found
          .Measured("checkpoints with the same bits", static_cast<double>(weight.still + 1),
                    "checkpoints")
          .Threshold(static_cast<double>(kCheckpoints), "consecutive checkpoints")
          .Fix(
              "The optimizer updates a different copy than the one that is saved. Create the "
              "optimizer after the model is on its device and wrapped, copy masters back after "
              "each step, and save the trained tensors.");
    } else {
      found.Measured("updates without effect", static_cast<double>(weight.still), "updates")
          .Threshold(static_cast<double>(changed > 0 ? kUpdates : kUpdatesAlone),
                     "consecutive updates")
          .Fix(lost
                   ? "Keep fp32 masters of the weights, or raise the rate: rate times gradient is "
                     "below half the weight's last place, so plain descent (SGD) rounds it away. "
                     "If the optimizer does not hold the tensor, pass all parameters to it."
                   : "Pass all parameters to the optimizer (create it after the model is complete; "
                     "add_param_group), or freeze the tensor with requires_grad_(False).")
          .Assume(
              "each observed step ends with an update, and the learning rate of every group was "
              "recorded");
    }
    Put(*found.verdict().mutable_details(), "updates", static_cast<double>(weight.updates));
    return found.Take();
  }

  static void Report(v1::Verdict verdict, const std::string& name, const WeightCourse& weight,
                     int64_t first, int64_t last, VerdictSink& out) {
    Put(*verdict.mutable_details(), "updates", static_cast<double>(weight.updates));
    SetPlace(verdict, name, "weight", first, last, std::vector<uint32_t>{weight.rank});
    out.Add(std::move(verdict));
  }

  static v1::Verdict Rest(const WeightCourse& weight) {
    const bool moved = weight.still < weight.updates;
    if (weight.held && weight.still > 0)
      return Inconclusive(
          "update-observed: the optimizer holds the tensor; precision/lost-update judges its "
          "update");
    if (moved) return Pass("the weight changes");
    if (weight.updates >= kUpdates)
      return Inconclusive(absl::StrCat("nothing-changes: no weight of the run changes yet; after ",
                                       kUpdatesAlone, " updates this becomes a finding"));
    if (weight.updates > 0)
      return Inconclusive(absl::StrCat("few-updates: fewer than ", kUpdates, " were observed"));
    if (weight.unrated > 0)
      return Inconclusive("no-rate: no learning rate was recorded in the steps with a gradient");
    if (weight.resting > 0)
      return Inconclusive("rate-zero: a learning rate is 0 in the steps with a gradient");
    if (weight.clamped > 0)
      return Inconclusive("one-value: all elements have one value; the tensor may be at a bound");
    if (weight.tiny > 0)
      return Inconclusive(
          "too-small: its update is smaller than half a unit in the last place, or only rounding "
          "errors");
    if (weight.poisoned > 0) return Inconclusive("poisoned: NaN or infinite values");
    return Inconclusive(
        "no-optimizer-state: the tensor keeps its bits, and the checkpoints contain no optimizer "
        "state that shows whether it was trained");
  }

  std::vector<std::string> frozen_;
  std::map<std::string, ObservedWeight> open_;  // by name, of this step
  std::optional<double> rate_;                  // of this step
  UsualGradients usual_;                        // of this step
  std::optional<double> named_;                 // share of the optimizer's parameters with a name
  std::map<std::pair<v1::Role, std::string>, WeightCourse> weights_;
  SavedWeights saved_;  // checkpoints
};

}  // namespace

CatalogueEntry unchanged_tensor() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<UnchangedTensor>(options);
          }};
}

}  // namespace plumbline::rules
