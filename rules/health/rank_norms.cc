#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"
#include "analysis/rates/rates.h"
#include "analysis/series/series.h"
#include "rules/bases/rank_losses.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/rank-norms

Ranks of one run log different gradient norms in the same step, or one rank's loss differs from the losses of the others.

**Why.** A gradient is clipped by the norm over all parameters. If each rank clips by the norm of its own shard or of
its gradient before the all-reduce, ranks scale
their parts by different factors: with norms of 1.0 and 1.5 and a limit of 1.0, one rank's update is 1.5 times as long
as the other's. Data-parallel replicas then drift apart;
shards of one model change the update's direction. If the value is only logged, the log shows a norm that no step had.

**Bad.** `grad_norm is 1.00 on rank 0 and 1.50 on rank 1 in step 10`

**Good.** The same value on all ranks, up to its last printed digit; one rank that prints.

**How to fix it.**
- FSDP: call the model's `clip_grad_norm_` (FSDP1), or `torch.nn.utils.clip_grad_norm_` on DTensors (FSDP2), not one on local tensors.
- DDP: clip after the backward pass has ended, not within `no_sync()` or before the last all-reduce.
- Tensor or pipeline parallel: add the squares over all groups, shared parameters once, and take the root.
- A loss that differs: compare the checksums of the weights over ranks (a replica that misses the all-reduce), then that rank's shard of the data.
- If only the log is local: log what the clip returned, on one rank.

**What it checks.** Logs and tables in which several ranks print a gradient norm (`[rank1]: step: 10 ... grad_norm:
1.50`, a column or key `rank`), in steps with finite values above 0 on two ranks or more. A step
differs if the largest value is more than 1 % above the smallest. A warning if five steps or more differ, and half of
those that were seen. The first finding is made in the fifth
such step.

Losses of ranks differ as their batches do. Warnings:
- *One rank leaves the others*, or up to a quarter of all (the ranks of a node). From three ranks and 24 steps on. Each loss is compared with the median of all.
  In each of the newest 8 steps these ranks are the highest (or the lowest). Their median is half above that of all (or half of it). It is twice as far (in ln) as any of
  their first 8 steps, as any other rank in the newest 8, and as the median of 8 steps of any other rank before.
- *A rank stands.* Its loss, of 4 digits, is the same in the newest 10 steps, and moved before. No other rank has one value in 3 steps. Likewise for up to half of the ranks.
- *A rank is 0.* Its loss is exactly 0 in the newest 10 steps, and was above 0 before, while the other ranks' losses are above 0. Likewise for up to half of the ranks. A
  stage of a pipeline without a loss is 0 from the first step on.

**Strength.** `heuristic`: some frameworks log a norm per pipeline stage on purpose.

**Inconclusive when** two ranks or more have a norm in fewer than five steps. A run with one known rank has no verdict.

**What it cannot see.** Which of the two norms clipped; norms that differ by less than 1 %; what `run.watch` records,
whose norm is that of its own rank where a model is sharded.

**Cost.** A comparison a value.

**Sources.** PyTorch documentation, `FullyShardedDataParallel.clip_grad_norm_`; Shoeybi et al., "Megatron-LM", 2019.
)page";

constexpr RuleInfo kInfo = {
    "health/rank-norms",
    "ranks log different gradient norms, or one rank's loss leaves the others",
    v1::LEVEL_WARNING,
    "0.2.0",
    kPage,
    {}};

constexpr double kNormsApart = 0.01;  // difference relative to the smallest norm
constexpr uint64_t kFewestApart = 5;  // steps
constexpr uint64_t kFewestNorms = 5;  // steps with two ranks

// Norms of one series over ranks and steps.
struct RankNorms {
  // seen: steps with at least two ranks. apart: steps of these in which the norms differ.
  uint64_t seen = 0, apart = 0;
  int64_t first = 0, last = 0;  // first and last of the seen steps
  bool reported = false;
  // In the first step that differs:
  int64_t step = 0;
  uint32_t low_rank = 0, high_rank = 0;
  double low = 0, high = 0;
  void Persist(Archive& a) {
    a(seen, apart, first, last, reported, step, low_rank, high_rank, low, high);
  }
};

class RankNormsRule : public ScalarRule {
 public:
  explicit RankNormsRule(const Options& options) : roles_(options.roles()) {}

  bool ReadsScalar(const v1::Site& site) const override {
    const SeriesRole role = roles_.Of(site.op());
    return role == SeriesRole::kGradientNorm || role == SeriesRole::kLoss;
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (step.items.size() < 2 || !ReadsScalar(step.site)) return;
    if (roles_.Of(step.site.op()) == SeriesRole::kLoss) {
      RankLosses& losses = losses_[{step.role, step.site.layer(), step.site.op()}];
      if (losses.Take(step)) out.Add(RankLossFinding(step.site.layer(), step.site.op(), losses));
      return;
    }
    const Item *low = nullptr, *high = nullptr;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar() || RateReported::IsExact(*item.source)) return;
      const double value = ValueOf(item);
      if (!(value > 0) || !std::isfinite(value)) continue;
      if (low == nullptr || value < ValueOf(*low)) low = &item;
      if (high == nullptr || value > ValueOf(*high)) high = &item;
    }
    const bool ranks = std::any_of(step.items.begin(), step.items.end(), [&](const Item& item) {
      return item.source->rank() != step.items.front().source->rank();
    });
    if (low == nullptr || !ranks) return;
    RankNorms& norms = norms_[{step.role, step.site.layer(), step.site.op()}];
    if (norms.seen++ == 0) norms.first = step.step;
    norms.last = std::max(norms.last, step.step);
    if (!(ValueOf(*high) > (1 + kNormsApart) * ValueOf(*low))) return;
    if (norms.apart++ == 0) {
      norms.step = step.step;
      norms.low = ValueOf(*low);
      norms.high = ValueOf(*high);
      norms.low_rank = low->source->rank();
      norms.high_rank = high->source->rank();
    }
    if (norms.reported || norms.apart < kFewestApart || 2 * norms.apart < norms.seen) return;
    norms.reported = true;
    out.Add(Found(step.site.layer(), step.site.op(), norms));
  }

  const void* judges_apart() const override { return this; }
  // Rows of only one rank cannot be compared, so they are skipped.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    return rows.size() - first;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, losses] : losses_) {
      const auto& [role, layer, op] = key;
      if (losses.left() != RankLosses::Kind::kNone) out.Add(RankLossFinding(layer, op, losses));
    }
    for (const auto& [key, norms] : norms_) {
      const auto& [role, layer, op] = key;
      if (norms.reported) {
        out.Add(Found(layer, op, norms));
        continue;
      }
      v1::Verdict verdict =
          norms.seen < kFewestNorms
              ? Inconclusive(absl::StrFormat(
                    "few-steps: two ranks have a gradient norm in %d steps; the rule needs %d",
                    norms.seen, kFewestNorms))
              : Pass(absl::StrFormat("ranks differ by more than 1 %% in %d of %d steps",
                                     norms.apart, norms.seen));
      SetPlace(verdict, layer, op, norms.first, norms.last, std::vector<uint32_t>{});
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(4, 4);  // 3: losses below the others; 4: several ranks, zeros
    archive(norms_, losses_);
  }

 private:
  static double ValueOf(const Item& item) { return item.evidence->scalar().value(); }

  static v1::Verdict Found(const std::string& layer, const std::string& op,
                           const RankNorms& norms) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("ranks log different gradient norms")
        .Explain(absl::StrFormat(
            "%s is %.6g on rank %d and %.6g on rank %d in step %d; ranks differ by more than 1 %% "
            "in %d of %d steps up to step %d. Each rank logs its own norm: it was logged before "
            "the reduction, or each rank clipped by its own norm.",
            op, norms.low, norms.low_rank, norms.high, norms.high_rank, norms.step, norms.apart,
            norms.seen, norms.last))
        .Cause("local-norm", 0.8)
        .Measured("largest norm / smallest norm", norms.high / norms.low)
        .Threshold(1 + kNormsApart, "in at least 5 steps, and in at least half of them")
        .Samples(norms.seen)
        .Witness("step", static_cast<double>(norms.step))
        .Witness("low", norms.low)
        .Witness("high", norms.high)
        .Fix(
            "Clip by the norm over all ranks, and log the value that the clip function returns: "
            "FSDP1 model.clip_grad_norm_, FSDP2 and DDP torch.nn.utils.clip_grad_norm_ after the "
            "reduction.")
        .At(layer, op, norms.step, norms.last,
            std::vector<uint32_t>{std::min(norms.low_rank, norms.high_rank),
                                  std::max(norms.low_rank, norms.high_rank)});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", op);
    Put(details, "step", static_cast<double>(norms.step));
    return found.Take();
  }

  const SeriesRoles roles_;  // stated by the user
  std::map<std::tuple<v1::Role, std::string, std::string>, RankNorms> norms_;
  std::map<std::tuple<v1::Role, std::string, std::string>, RankLosses> losses_;
};

}  // namespace

CatalogueEntry rank_norms() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<RankNormsRule>(options);
          }};
}

}  // namespace plumbline::rules
