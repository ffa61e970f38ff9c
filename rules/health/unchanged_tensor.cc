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
#include "base/half.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/unchanged-tensor

A weight has a gradient, the rate is not zero, and the weight keeps its bits.

**Why.** The optimizer does not hold it: it was made before a layer was added, replaced or moved, or from a list that
leaves the layer out. The backward pass still pays for its gradient. A head of 50,000 by 4,096 that nobody trains is 200
million parameters of noise that the rest of the model learns to live with: the loss falls, and ends higher.

**What it checks.** Where the tensors of a run are observed: the 128-bit digest of a weight (role `weight`), the gradient of the same
name (role `gradient`) and the learning rates told in that step (`lr`, `lr.1`, ...). An update counts where the
gradient is finite and not zero, every rate that was told is above 0, and a step of that rate is larger than the last
place of the weight's largest element; it is without effect where the digest is that of the observation before. A finding needs 3 in a row, in each
of which another weight changed, or 8 where no weight of the run does.

**Bad.** `head.weight: the same bits over 3 updates (steps 4 to 16), gradient up to 0.02, rate 0.001; of the others 23 change`.

**Good.** Weights that change; frozen ones without a gradient (`requires_grad_(False)`).

**How to fix it.**
- Make the optimizer after the model is whole, on its device and wrapped: `AdamW(model.parameters())`; a layer that
  comes later by `optimizer.add_param_group`.
- `set(id(p) for g in optimizer.param_groups for p in g["params"])` against `model.named_parameters()` tells who is left out.
- Frozen on purpose: `p.requires_grad_(False)`, which saves its gradient too; or declare it:
  `--set health/unchanged-tensor.frozen='encoder.*'` (again for more).

**Strength.** `proved`: digest, gradient and rate are what was observed.

**Inconclusive when** no rate was told, one of them is 0, fewer than 3 updates were observed, values are NaN or infinite (of a weight that
changes otherwise: for those steps, beside the pass of the others), a step of that rate is below the weight's last place, no weight of the run changes and 8 updates were not seen, or
an update of the tensor was observed: then the optimizer holds it, and `precision/lost-update` tells where it went.

**What it cannot see.** Parameter groups behind the fourth, whose rate `run.watch` does not tell; a weight that changes by decay alone; ranks behind the
first that reports a tensor (shards of one name).

**Cost.** Some 100 bytes a weight; the digests are there.

**Sources.** Karpathy, "A Recipe for Training Neural Networks", 2019: verify that every parameter trains.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "frozen",
     .type = OptionInfo::Type::kText,
     .unit = "patterns of names",
     .default_value = "",
     .reason = "what is frozen has no gradient, unless it is said here"},
};

constexpr RuleInfo kInfo = {"health/unchanged-tensor",
                            "a tensor with a gradient does not change",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr uint64_t kUpdates = 3;
constexpr uint64_t kUpdatesAlone = 8;  // where nothing else shows that the optimizer stepped
constexpr double kAdamEpsilon = 1e-8;  // a gradient far below it moves nothing
constexpr size_t kMostWeights = size_t{1} << 18;

// What one step tells of a name, of the lowest rank that reports it.
struct Seen {
  bool observed = false;         // the weight
  std::optional<Digest> weight;  // where it is finite
  uint32_t rank = 0;
  DType dtype = DType::kUnspecified;
  double weight_amax = 0;
  bool gradient = false;  // finite and not zero
  double gradient_amax = 0;
  bool poisoned = false;
  bool updated = false;  // an optimizer's update of it was observed
};

// One weight of the run.
struct Weight {
  Digest digest;
  uint32_t rank = 0;
  uint32_t attempt = 0;
  bool known = false;
  uint64_t still = 0;         // updates in a row without effect
  uint64_t beside_other = 0;  // of these, another weight changed
  uint64_t updates = 0;       // that counted, with effect or without
  uint64_t unrated = 0;       // gradients in steps that told no rate
  uint64_t resting = 0;       // in steps with a rate of 0
  uint64_t tiny = 0;          // steps too small for the weight's last place
  uint64_t poisoned = 0;
  bool held = false;  // an update was observed
  bool told = false;
  int64_t still_first = 0;
  int64_t step_first = 0;
  int64_t step_last = 0;
  int64_t poisoned_first = 0;  // where poisoned is not 0
  int64_t poisoned_last = 0;
  int64_t judged_last = 0;  // the last update that counted
  void Persist(Archive& a) {
    a(digest, rank, attempt, known, still, beside_other, updates, unrated, resting, tiny, poisoned);
    a(held, told, still_first, step_first, step_last, poisoned_first, poisoned_last, judged_last);
  }
};

// "lr", "lr.1", ...: what run.watch tells of each parameter group.
bool IsRate(std::string_view op) {
  return op == "lr" || op == "learning_rate" || op.starts_with("lr.");
}

class UnchangedTensor : public Rule {
 public:
  explicit UnchangedTensor(const Options& options)
      : frozen_(
            absl::StrSplit(options.Text("frozen"), absl::ByAnyChar(" ,\n"), absl::SkipEmpty())) {}

  bool ReadsScalar(const v1::Site& site) const override { return IsRate(site.op()); }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    for (const Item& item : step.items) {
      const v1::Evidence& evidence = *item.evidence;
      if (evidence.has_scalar() && IsRate(step.site.op())) TakeRate(evidence.scalar().value());
      if (evidence.has_tensor()) TakeTensor(step, item);
      if (evidence.has_update() && !IsAverage(evidence.update().config()) &&
          !IsAccumulation(evidence.update().config()))
        open_[step.site.layer()].updated = true;
    }
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    uint64_t changed = 0;
    for (const auto& [name, seen] : open_) changed += Changes(step, name, seen) ? 1 : 0;
    for (const auto& [name, seen] : open_) JudgeOne(step, name, seen, changed, out);
    open_.clear();
    rate_.reset();
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, weight] : weights_) {
      if (weight.told || !HadGradient(weight)) continue;
      v1::Verdict verdict = Rest(weight);
      // What NaN hides is not passed: those steps have a verdict of their own.
      const bool apart = weight.poisoned > 0 && verdict.kind() == v1::Verdict::KIND_PASS;
      Say(std::move(verdict), key.second, weight, weight.step_first,
          apart ? weight.judged_last : weight.step_last, out);
      if (apart) {
        Say(Inconclusive(absl::StrCat("poisoned: NaN or infinite values in ", weight.poisoned,
                                      weight.poisoned == 1 ? " step" : " steps")),
            key.second, weight, weight.poisoned_first, weight.poisoned_last, out);
      }
    }
  }

  // Between steps open_ and rate_ are empty.
  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(weights_);
  }

 private:
  // Several groups: the smallest. NaN is no rate above 0.
  void TakeRate(double value) {
    const double rate = std::isfinite(value) ? value : 0;
    rate_ = rate_ ? std::min(*rate_, rate) : rate;
  }

  void TakeTensor(const SiteStep& step, const Item& item) {
    const v1::TensorState& state = item.evidence->tensor();
    const bool weight = state.role() == "weight", gradient = state.role() == "gradient";
    if ((!weight && !gradient) || !state.has_summary()) return;
    const v1::TensorSummary& s = state.summary();
    const bool finite = s.nan() + s.pos_inf() + s.neg_inf() == 0;
    Seen& seen = open_[step.site.layer()];
    if (gradient) {
      seen.poisoned |= !finite;
      seen.gradient |= finite && s.zero() < s.count() && s.amax() > 0;
      seen.gradient_amax = std::max(seen.gradient_amax, finite ? s.amax() : 0);
      return;
    }
    // Items come by rank: of several calls of one rank the last.
    if (seen.observed && seen.rank != item.source->rank()) return;
    seen.observed = true;
    seen.weight = Digest{s.digest_low(), s.digest_high()};
    seen.rank = item.source->rank();
    seen.dtype = static_cast<DType>(state.dtype());
    seen.weight_amax = s.amax();
    if (!finite || (s.digest_low() == 0 && s.digest_high() == 0)) seen.weight.reset();
    seen.poisoned |= !finite;
  }

  // nullptr: not seen before.
  Weight* Find(const StepEnd& step, const std::string& name) {
    const auto found = weights_.find({step.role, name});
    return found == weights_.end() ? nullptr : &found->second;
  }

  // Against the observation before.
  bool Changes(const StepEnd& step, const std::string& name, const Seen& seen) {
    const Weight* weight = Find(step, name);
    return weight != nullptr && seen.weight && weight->known && weight->attempt == step.attempt &&
           weight->rank == seen.rank && weight->digest != *seen.weight;
  }

  void JudgeOne(const StepEnd& step, const std::string& name, const Seen& seen, uint64_t changed,
                VerdictSink& out) {
    const bool frozen = std::any_of(frozen_.begin(), frozen_.end(),
                                    [&](const std::string& glob) { return GlobMatch(glob, name); });
    if (frozen) return;
    Weight* weight = Find(step, name);
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
      weight->known = false;  // NaN keeps its bits whatever is added
      weight->still = weight->beside_other = 0;
      return;
    }
    Compare(step, seen, changed, *weight);
    const bool enough = weight->beside_other >= kUpdates || weight->still >= kUpdatesAlone;
    if (!enough || weight->told || weight->held) return;
    weight->told = true;
    out.Add(Found(step, name, seen, *weight, changed));
  }

  void Compare(const StepEnd& step, const Seen& seen, uint64_t changed, Weight& weight) const {
    const bool comparable =
        weight.known && weight.attempt == step.attempt && weight.rank == seen.rank;
    const bool same = comparable && weight.digest == *seen.weight;
    if (!same) {
      weight.still = weight.beside_other = 0;
      weight.still_first = step.step;
    }
    weight.digest = *seen.weight;
    weight.rank = seen.rank;
    weight.attempt = step.attempt;
    weight.known = true;
    if (!comparable || !seen.gradient || seen.poisoned) return;
    if (!rate_) {
      ++weight.unrated;
      return;
    }
    if (!(*rate_ > 0)) {
      ++weight.resting;
      return;
    }
    if (!Moves(seen)) {
      ++weight.tiny;
      return;
    }
    ++weight.updates;
    weight.judged_last = step.step;
    if (!same) return;
    ++weight.still;
    weight.beside_other += changed > 0 ? 1 : 0;
  }

  // Would a step of the rate, normalised as Adam's are, show in the weight's last place?
  bool Moves(const Seen& seen) const {
    const double step = *rate_ * std::min(1.0, seen.gradient_amax / kAdamEpsilon);
    return !IsFloating(seen.dtype) || step >= UlpOf(seen.weight_amax, seen.dtype);
  }

  v1::Verdict Found(const StepEnd& step, const std::string& name, const Seen& seen,
                    const Weight& weight, uint64_t changed) const {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    const std::string others =
        changed > 0 ? absl::StrCat("of the others ", changed, changed > 1 ? " change" : " changes")
                    : std::string("no other weight that is observed changes");
    found.Title(kInfo.title)
        .Explain(absl::StrFormat("%s has the same bits (digest %016x%016x) over %d observed "
                                 "updates, steps %d to %d, though its "
                                 "gradient is not zero (up to %.3g) and the rate is %.3g; %s.",
                                 name, seen.weight->high, seen.weight->low, weight.still,
                                 weight.still_first, step.step, seen.gradient_amax, *rate_, others))
        .Cause("not-in-optimizer", 0.8)
        .Measured("updates without effect", static_cast<double>(weight.still), "updates")
        .Threshold(static_cast<double>(changed > 0 ? kUpdates : kUpdatesAlone), "updates in a row")
        .Fix(
            "Give the optimizer all parameters (make it after the model is whole; "
            "add_param_group), or freeze the tensor by requires_grad_(False).")
        .Samples(weight.still)
        .Witness("digest", absl::StrFormat("%016x%016x", seen.weight->high, seen.weight->low))
        .Witness("gradient_amax", seen.gradient_amax)
        .Witness("rate", *rate_)
        .Assume("each observed step ends with an update, and every group's rate was told")
        .At(name, "weight", weight.still_first, step.step, std::vector<uint32_t>{weight.rank});
    Put(*found.verdict().mutable_details(), "updates", static_cast<double>(weight.updates));
    return found.Take();
  }

  static void Say(v1::Verdict verdict, const std::string& name, const Weight& weight, int64_t first,
                  int64_t last, VerdictSink& out) {
    Put(*verdict.mutable_details(), "updates", static_cast<double>(weight.updates));
    SetPlace(verdict, name, "weight", first, last, std::vector<uint32_t>{weight.rank});
    out.Add(std::move(verdict));
  }

  // Of a frozen weight there is nothing to say.
  static bool HadGradient(const Weight& w) {
    return w.updates + w.unrated + w.resting + w.tiny + w.poisoned > 0;
  }

  static v1::Verdict Rest(const Weight& weight) {
    const bool moved = weight.still < weight.updates;
    if (weight.held && weight.still > 0)
      return Inconclusive(
          "update-observed: the optimizer holds it; precision/lost-update tells where its change "
          "goes");
    if (moved) return Pass("the weight changes");
    if (weight.updates >= kUpdates)
      return Inconclusive(absl::StrCat("nothing-changes: no weight of the run changes; after ",
                                       kUpdatesAlone, " updates that is a finding"));
    if (weight.updates > 0)
      return Inconclusive(absl::StrCat("few-updates: fewer than ", kUpdates, " were observed"));
    if (weight.unrated > 0)
      return Inconclusive("no-rate: no learning rate was told where it has a gradient");
    if (weight.resting > 0)
      return Inconclusive("rate-zero: a learning rate of this run is 0 where it has a gradient");
    if (weight.tiny > 0)
      return Inconclusive("too-small: a step of this rate is below the weight's last place");
    return Inconclusive("poisoned: NaN or infinite values");
  }

  std::vector<std::string> frozen_;
  std::map<std::string, Seen> open_;  // by name, of this step
  std::optional<double> rate_;        // of this step
  std::map<std::pair<v1::Role, std::string>, Weight> weights_;
};

}  // namespace

CatalogueEntry unchanged_tensor() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<UnchangedTensor>(options);
          }};
}

}  // namespace plumbline::rules
