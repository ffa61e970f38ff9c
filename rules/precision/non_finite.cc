#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "analysis/tensor/tensor.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/non-finite

The first NaN or infinity: in which step, which operation and on which rank it appeared, and what
that rank had seen right before.

**Why.** Two steps after one infinity in one element of one rank, all values on all ranks are NaN: attention
mixes it over the sequence, the all-reduce over the ranks, the optimizer into the weights. The loss shows it
later, when its origin is not visible any more. fp16 ends at 65,504: an activation of 256 squared is beyond it.

**Bad.** `step 812, rank 3: layers.17.mlp/activation has 2 infinities; before it, layers.17.norm reached
6.1e4, 93 % of the largest f16`.

**Good.** None; under a loss scale, none but in the steps that the scale backs off from.

**How to fix it.**
- The operation before it was near the dtype's maximum: bf16 or fp32 there, a clamp, QK-norm, a smaller
  initialisation; PyTorch `torch.autocast` keeps softmax, norms and losses in fp32.
- A gradient under fp16: `torch.cuda.amp.GradScaler`, DeepSpeed `fp16.loss_scale_window`, Megatron-LM
  `--loss-scale-window`; these lower their scale by design, so the finding is a note here.
- The first is on one rank alone, with the same inputs elsewhere: test that device.
- Find the operation itself with `torch.autograd.set_detect_anomaly(True)` from a checkpoint of this step.

**What it checks.** Every tensor, update and sampled reduction that was observed, in the order in which the
ranks made their observations. The first one that holds a NaN or an infinity is the finding; everything it floods afterwards, in the same
step and the ones that follow without a clean one between, is the same incident. A weight that
held it when its step began (`run.watch` looks at the weights as soon as a loss or a gradient is NaN or infinite; an update's
sampled elements before it) comes before all else of that step. The finding states which tensors were observed before,
and which were not. Losses and gradient norms are
`health/loss-non-finite`'s. They come every step and tensors in some: if a loss was NaN before a tensor was observed, the finding states since when.
A loss comes before the gradients that are made from it; the finding names the gradient, and states that the loss must be checked first.

**Strength.** `proved`: counted over every element (reductions: over the sampled ones).

**Inconclusive when** all there is looks like a mask: −inf among finite values in activations, or NaN in as
many probabilities as whole rows hold (every key masked).

**Late evidence** (its steps were closed without it) is judged rank by rank when it comes; gradients under a loss scale are not.

**Reasons.** `no-values`: the observations contain no values and no counts; `masks`: only -inf, or rows of NaN, among
finite values, as masks produce them.

**What it cannot see.** Operations without an observation: the first *observed* one is named. Without an
order of observation (single dumps without `order`) sites are ordered by name, and the finding states this. Each rank
numbers its own observations; two ranks are put in order by what either saw of the other's site, and where they share
none (stages of a pipeline) by name, which the finding also states.

**Cost.** None beyond the statistics; a step's observations are kept until it closes.

**Sources.** Micikevicius et al., "Mixed Precision Training", 2018.
)page";

constexpr RuleInfo kInfo = {
    "precision/non-finite", "the first NaN or infinity", v1::LEVEL_ERROR, "0.1.0", kPage, {}};

bool IsLossScale(const v1::Site& site) { return RoleByName(site.op()) == SeriesRole::kLossScale; }
bool IsTrainingLoss(const v1::Site& site) { return RoleByName(site.op()) == SeriesRole::kLoss; }

class NonFinite : public ScalarRule {
 public:
  bool ReadsScalar(const v1::Site& site) const override {
    return IsLossScale(site) || IsTrainingLoss(site);
  }

  bool judges_late() const override { return true; }
  bool judges_unseen_steps() const override { return false; }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    Group& group = groups_[{step.attempt, step.role}];
    if (step.late) return late_.Take(step);
    for (const Item& item : step.items) {
      group.trace.Take(step, item);
      if (!item.evidence->has_scalar()) continue;
      const double value = item.evidence->scalar().value();
      const SeriesRole role = RoleOf(step);
      if (role == SeriesRole::kLossScale) {
        if (std::isfinite(value))
          group.scale_now = std::min(group.scale_now.value_or(value), value);
      } else if (role == SeriesRole::kLoss) {
        (std::isfinite(value) ? group.loss_finite : group.loss_lost) = true;
      }
    }
  }

  const void* judges_apart() const override { return this; }
  // Takes rows in which all losses and scales are finite, if no sighting waits for a scale.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    const size_t taken = rows.columns.empty() ? 0 : rows.Finite(first);
    if (taken == 0) return 0;
    Group& group = groups_[{rows.end.attempt, rows.end.role}];
    std::optional<double> scale;
    bool loss = false;
    for (const ScalarColumn& column : rows.columns) {
      const bool of_scale = RoleOf(column.any()) == SeriesRole::kLossScale;
      if (of_scale && group.pending) return 0;
      const double last = column.value(first + taken - 1);
      if (of_scale) scale = std::min(scale.value_or(last), last);
      loss |= !of_scale;
    }
    if (scale) group.scale = scale;
    if (loss) group.lost_since.reset();
    return taken;
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    Group& group = groups_[{step.attempt, step.role}];
    const bool fell = group.scale && group.scale_now && *group.scale_now < *group.scale;
    // The scale may be logged before or after its step.
    if (group.pending && group.scale_now) {
      Emit(*std::exchange(group.pending, std::nullopt), fell, out);
      group.open = !fell;
      late_memory_[{step.attempt, step.role}].Opened(step.step);
    }
    if (group.loss_lost && !group.lost_since) group.lost_since = step.step;
    if (group.loss_finite && !group.loss_lost) group.lost_since.reset();
    group.loss_lost = group.loss_finite = false;
    Look(group, step, fell, out);
    if (group.scale_now) group.scale = group.scale_now;
    group.scale_now.reset();
    for (const auto& [site, finite] : group.trace.looked_at()) {
      if (finite) group.finite[site] = step.step;
    }
    if (group.trace.observations() > 0) {
      group.looked = step.step;
      looks_.See(step.step);
    }
    if (group.trace.weights_finite()) group.weights = step.step;
    group.trace.Clear();
  }

  void JudgeLate(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const LateStep& late : late_.TakeAll()) {
      LookAtLate(late, out);
    }
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    for (auto& [key, group] : groups_) {
      if (group.pending) Emit(*std::exchange(group.pending, std::nullopt), false, out);
    }
    // The rule health/loss-non-finite judges runs with only scalars.
    if (found_ || observations_ == 0) return;
    v1::Verdict verdict =
        values_ == 0 ? Inconclusive("no-values: the observations contain no values and no counts")
        : masks_     ? Inconclusive(
                           "masks: only -inf, or rows of NaN, among finite values; masks produce these")
                 : Pass("every observed value is finite");
    if (looks_.any()) {
      looks_.Put(&verdict);
    } else {  // late evidence alone
      verdict.mutable_site()->set_step_first(run.step_first);
      verdict.mutable_site()->set_step_last(run.step_last);
    }
    Put(*verdict.mutable_details(), "observations", static_cast<double>(observations_));
    Put(*verdict.mutable_details(), "values", static_cast<double>(values_));
    out.Add(std::move(verdict));
  }

  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(6, 5);  // late_ is empty here
    archive(groups_, noted_, observations_, values_, masks_, found_, late_memory_);
    if (version >= 6) archive(looks_);
    if (archive.reading()) roles_ = {};  // recomputed
  }

 private:
  struct Group {
    NonFiniteTrace trace;
    std::optional<double> scale, scale_now;
    std::optional<NonFiniteSighting> pending;
    bool open = false;  // the last observed step was not clean
    // In this step, some training loss is not finite; some training loss is finite.
    bool loss_lost = false, loss_finite = false;
    std::optional<int64_t> lost_since;  // first step of the current run of non-finite losses
    std::map<std::pair<std::string, std::string>, int64_t>
        finite;                      // the last step in which each site was finite
    std::optional<int64_t> looked;   // the last step in which values were observed
    std::optional<int64_t> weights;  // the last step in which weights were observed, all finite
    // The trace, scale_now, loss_lost and loss_finite are empty between steps, so they are not
    // stored.
    void Persist(Archive& a) { a(scale, pending, open, lost_since, finite, looked, weights); }
    std::optional<int64_t> FiniteAt(const std::string& layer, const std::string& op,
                                    int64_t before) const {
      const auto at = finite.find({layer, op});
      if (at == finite.end() || at->second >= before) return std::nullopt;
      return at->second;
    }
  };

  SeriesRole RoleOf(const SiteStep& step) {
    return roles_.Of(step, [&] { return RoleByName(step.site.op()); });
  }

  void Look(Group& group, const StepEnd& step, bool fell, VerdictSink& out) {
    const NonFiniteTrace& trace = group.trace;
    observations_ += trace.observations();
    values_ += trace.values();
    masks_ |= trace.masks();
    const std::optional<FirstSeen> seen = trace.First();
    if (trace.observations() == 0) return;
    if (!seen) {
      group.open = false;
      return;
    }
    if (group.open) return;
    NonFiniteSighting s = SightingOf(trace, *seen, group, step.step);
    const bool scaled = s.first.gradient_like() && (group.scale || group.scale_now);
    if (scaled && !fell) {
      if (!group.pending) group.pending = std::move(s);
      return;
    }
    group.open = !scaled;
    late_memory_[{step.attempt, step.role}].Opened(step.step);
    Emit(s, scaled, out);
  }

  // Judges one rank's late step alone, because the other ranks' evidence was judged when the step
  // closed. It is not known whether the loss scale backed off in this step. So scaled gradients,
  // which overflow by design, are judged only on ranks that reported in time.
  void LookAtLate(const LateStep& late, VerdictSink& out) {
    Group& group = groups_[{late.attempt, late.role}];
    LateMemory& memory = late_memory_[{late.attempt, late.role}];
    observations_ += late.trace.observations();
    values_ += late.trace.values();
    masks_ |= late.trace.masks();
    const std::optional<FirstSeen> seen = late.trace.First();
    if (!seen) {
      if (late.trace.observations() > 0) memory.Clean(late.rank);
      return;
    }
    const bool scaled = seen->observation->gradient_like();
    if ((scaled && group.scale) || !memory.IsNews(late, group.open)) return;
    Emit(SightingOf(late.trace, *seen, group, late.step), false, out);
  }

  static NonFiniteSighting SightingOf(const NonFiniteTrace& trace, const FirstSeen& seen,
                                      const Group& group, int64_t step) {
    const Observation& first = *seen.observation;
    NonFiniteSighting s;
    s.step = step;
    s.first = first;
    s.ranks = seen.ranks;
    s.finite_ranks = seen.finite_ranks;
    s.ordered = trace.ordered();
    s.apart = seen.apart;
    s.sites = trace.sites();
    if (const Observation* before = trace.Before(first)) s.before = *before;
    s.finite_step = group.FiniteAt(first.layer, first.op, step);
    if (first.at_start()) {
      s.finite_weight = group.FiniteAt(first.layer, "weight", step);
      for (const char* op : {"weight", "update"})
        s.finite_step = std::max(s.finite_step, group.FiniteAt(first.layer, op, step));
      s.in_front = MomentText(trace.MomentsOf(first));
    } else if (first.after_loss() && s.ordered) {
      // If no weight was ever observed, the sentence "Nothing was observed before it" is enough.
      if (s.before || group.weights)
        s.in_front = InFrontText(trace.LookedInFront(first), group.weights);
    }
    s.in_front += LossText(group, first, step);
    return s;
  }

  // Returns a sentence with the step since which the loss is not finite. A loss is logged in every
  // step, a tensor only in some.
  static std::string LossText(const Group& group, const Observation& first, int64_t step) {
    if (!group.lost_since || *group.lost_since > step) return "";
    if (*group.lost_since < step) {
      return absl::StrFormat(
          " The loss is NaN or infinite since step %d (health/loss-non-finite)%s.",
          *group.lost_since,
          group.looked && *group.looked < *group.lost_since ? "; no tensor was observed between"
                                                            : "");
    }
    if (!first.after_loss()) return "";
    return " The loss of this step is NaN or infinite, and the gradients are computed from it: "
           "check the loss first (health/loss-non-finite).";
  }

  void Emit(const NonFiniteSighting& s, bool backed_off, VerdictSink& out) {
    const Observation& o = s.first;
    found_ = true;
    // Back-offs occur every few hundred steps by design, so report one per site.
    if (backed_off && !noted_.emplace(o.layer, o.op).second) return;
    FindingBuilder found(backed_off ? v1::LEVEL_NOTE : v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("first non-finite %s: %s", o.what, CountText(o)))
        .Explain(absl::StrFormat(
            "In step %d %s the first to observe a NaN or infinite value: %s of %d in %s/%s (%s). "
            "%s%s",
            s.step, s.WhoText(), CountText(o), o.count, o.layer, o.op, DTypeName(o.dtype),
            s.HistoryText(), backed_off ? " The loss scaler reduced its scale, as intended." : ""))
        .Cause(s.Cause(backed_off), s.Confidence(backed_off))
        .Measured("NaN or infinite values", static_cast<double>(o.non_finite()), "values")
        .Threshold(0, "none is expected")
        .Fix(backed_off ? "Do nothing while it is rare (health/loss-scale counts it)."
             : s.first.at_start()
                 ? "Check the gradient of the step before, if it was not observed, and find what "
                   "else writes to this weight: the update of the step before, loading, averaging, "
                   "an initialisation, code between two steps. If one rank alone is affected, test "
                   "its device."
                 : "Compute the operations between the last finite tensor and the first bad one in "
                   "bf16 or fp32. Or add a clamp or a norm there, or a loss scale under fp16. Run "
                   "torch.autograd.set_detect_anomaly(True) from this step's checkpoint.");
    s.Fill(found.verdict());
    out.Add(found.Take());
  }

  std::map<std::pair<uint32_t, v1::Role>, Group> groups_;
  LateSteps late_;
  SiteMemo<SeriesRole> roles_;
  std::map<std::pair<uint32_t, v1::Role>, LateMemory> late_memory_;
  std::set<std::pair<std::string, std::string>> noted_;
  StepLooks looks_;
  uint64_t observations_ = 0, values_ = 0;
  bool masks_ = false;
  bool found_ = false;
};

}  // namespace

CatalogueEntry non_finite() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<NonFinite>();
          }};
}

}  // namespace plumbline::rules
