#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"
#include "analysis/replicas/replicas.h"
#include "analysis/series/series.h"
#include "rules/bases/rank_batches.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/same-data

Two data-parallel ranks have the same gradients, step after step: they read the same batch.

**Why.** If 8 ranks read the same batch, 7 of them add nothing: the run sees an eighth of its data, its gradients
are as noisy as one rank's, and an epoch shows every example 8 times. No curve shows this, because the loss is that
of a healthy run with an eighth of the batch.

**Bad.** `ranks 0, 4 passed the same 256 of 256 values in steps 12, 13, 14`.

**Good.** Ranks whose gradients differ, as those of different batches do in every bit that rounding leaves.

**How to fix it.**
- PyTorch: `DistributedSampler(dataset, num_replicas=world_size, rank=rank)`, and `sampler.set_epoch(epoch)`.
- An `IterableDataset` splits itself by rank *and* by worker; Hugging Face `split_dataset_by_node(dataset, rank,
  world_size)`; Accelerate: `prepare(dataloader)`.
- Random crops or sampled batches: `torch.manual_seed(seed + rank)` for data, one seed for weights.
- Ranks that read the same data by design (tensor, pipeline or context parallelism within the group, consecutive
  ranks): `--set health/same-data.replicas=8`.

**What it checks.** The values that the ranks hand to a reduction of gradients (op sum or avg, before it), at the
sampled elements. Two ranks are the same in a step where all of them are bit-equal, at least 64 are finite and not zero,
and these have 8 values at least. A finding needs the same two ranks to be so in each of the last 3 of at least 4
consecutive observed steps. **Where losses help:** a watched run samples few sums. Two or three steps are enough if the same
ranks were equal in each of them, and their training losses are also bit-equal in each of the last 64 steps with a loss, with 16 different
values and at least 32 changes. Losses alone do not: a loss that is averaged over the ranks is the same on all.
Reductions of gradients are those whose site has `grad` in its name (`run.watch` and
`run.observed` name them `gradients.0`, ...) and those of a DDP hook; `sites = all` takes every sum and average
for one. **Where digests help:** `run.watch` sends a digest of each step's token ids (health/repeated-data). Ranks of one
DistributedDataParallel group whose digests are equal in each of 16 consecutive steps, with 8 different ones, are a warning: they read the same
rows, even if dropout makes their gradients differ. Copies of weights or buffers that are averaged are equal by design, and so are partial results that every rank of a
tensor-parallel group computes.

**Strength.** `proved`: the bits are the same, in three steps in a row. That the ranks should differ is what a
reduction of gradients is for. `statistical` where losses help: if another batch gives another loss in every second step, 64 equal ones
have a chance of 2^-64. `proved`, at most a warning, by digests: a group may read the same rows by design (context parallelism within it).

**Inconclusive when** fewer than 4 steps contained values of two ranks (2, where the losses are the same), fewer than
64 elements can show it, they are
equal at a site that is not named as gradients, or all are NaN or infinite.

**What it cannot see.** Ranks that read the same data in another order, or some of it; the same batch
under other dropout or augmentation: the gradients differ then. Elements that were not sampled.

**Cost.** A comparison that ends at the first difference; three numbers a rank and site are kept.

**Sources.** PyTorch documentation, `torch.utils.data.distributed.DistributedSampler`.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "replicas",
     .type = OptionInfo::Type::kInteger,
     .unit = "consecutive ranks that read the same data by design",
     .default_value = "1",
     .reason = "plain data parallelism: each rank reads its own data",
     .low = 1,
     .high = 1 << 20},
    {.name = "sites",
     .type = OptionInfo::Type::kChoice,
     .unit = "",
     .default_value = "gradients",
     .reason = "sums of other values may be equal by design",
     .choices = "gradients|all"},
};

constexpr RuleInfo kInfo = {"health/same-data",
                            "ranks have the same gradients: they read the same batch",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr size_t kLast = 3;  // number of steps in which the values must be equal
constexpr uint64_t kObserved = 4;
constexpr uint64_t kObservedNextToLosses = 2;
constexpr size_t kMostSites = size_t{1} << 16;  // a group may get a new name in each step

constexpr char kFix[] =
    "Split the data by rank: DistributedSampler(num_replicas, rank) with set_epoch, "
    "split_dataset_by_node, or a data seed that depends on the rank.";

// One group's reductions at one site.
struct Site {
  uint32_t attempt = 0;
  uint64_t steps = 0;  // consecutive observed steps
  std::vector<uint32_t> ranks;
  std::deque<std::vector<uint32_t>> classes;  // equal ranks, for each of the newest steps
  std::deque<int64_t> numbers;                // numbers of these steps
  std::set<uint32_t> reported;
  std::string why;          // why nothing could be observed
  uint64_t unclear = 0;     // number of observed steps without a clear result
  bool undeclared = false;  // values are equal, but the site's name does not mention gradients
  bool declared = false;    // the site holds gradients
  int64_t step_first = 0;
  int64_t step_last = -1;
  void Persist(Archive& a) {
    a(attempt, steps, ranks, classes, numbers, reported, why, unclear, undeclared);
    a(step_first, step_last, declared);
  }

  void Take(const SiteStep& step, const InputClasses& seen) {
    if (attempt != step.attempt || ranks != seen.ranks) {
      steps = unclear = 0;
      classes.clear();
      numbers.clear();
    }
    attempt = step.attempt;
    ranks = seen.ranks;
    ++steps;
    classes.push_back(seen.classes);
    numbers.push_back(step.step);
    if (classes.size() > kLast) {
      classes.pop_front();
      numbers.pop_front();
    }
    unclear += seen.unclear ? 1 : 0;
  }
};

class SameData : public ScalarRule {
 public:
  explicit SameData(const Options& options)
      : roles_(options.roles()),
        replicas_(static_cast<uint32_t>(options.Integer("replicas"))),
        all_sites_(options.Choice("sites") == "all") {}

  bool ReadsScalar(const v1::Site& site) const override {
    return RankBatches::Reads(site) || roles_.Of(site.op()) == SeriesRole::kLoss;
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (!step.items.empty() && step.items.front().evidence->has_scalar()) {
      if (RankBatches::Reads(step.site)) return TakeBatch(step, out);
      const bool loss = known_.Of(step, [&] { return ReadsScalar(step.site); });
      if (loss && losses_[{step.role, step.site.op()}].Take(step)) JudgeLosses(step, out);
      return;
    }
    std::map<std::string, InputClasses> by_group;
    bool hook = false;
    for (const JoinedReduction& joined : *JoinReductions(step)) {
      Site* site = SiteOf(step, joined.group);
      if (site == nullptr) return;
      const auto c = DecodeReduction(joined, /*compressed_too=*/true);
      if (!c.ok()) {
        if (site->why.empty()) site->why = std::string(c.status().message());
        continue;
      }
      const bool sum = c->op == v1::ReductionCall::OP_SUM || c->op == v1::ReductionCall::OP_AVG;
      if (!sum || c->ranks < 2) {
        site->why = sum ? "one-rank: the reduction has one rank"
                        : "no-sum: the reduction is neither a sum nor an average";
        continue;
      }
      hook |= c->algorithm == "hook";
      InputClasses seen = ClassesOfInputs(joined, *c);
      const auto [at, fresh] = by_group.emplace(joined.group, seen);
      if (!fresh) Refine(seen, at->second);
    }
    for (const auto& [group, seen] : by_group) {
      Site& site = *SiteOf(step, group);
      if (!seen.finite) {
        site.why = "poisoned: every value is NaN or infinite";
        continue;
      }
      site.declared |= hook || all_sites_ || StatesGradients(step.site);
      site.Take(step, seen);
      JudgeSite(step, seen, hook, site, out);
    }
  }

  const void* judges_apart() const override { return this; }
  // Losses of only one rank cannot be compared, so they are skipped.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    for (const ScalarColumn& column : rows.columns) {
      if (!RankBatches::Reads(column.any().site))
        losses_.try_emplace({rows.end.role, column.any().site.op()});
    }
    return rows.size() - first;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, site] : sites_) {
      if (!site.reported.empty()) continue;
      v1::Verdict verdict = Rest(site);
      Put(*verdict.mutable_details(), "steps", static_cast<double>(site.steps));
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), site.step_first, site.step_last,
               site.ranks);
      out.Add(std::move(verdict));
    }
  }

  // known_ is recomputed after a restore.
  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(3, 2);
    archive(sites_, losses_);
    if (version >= 3) archive(batches_);
  }

 private:
  void TakeBatch(const SiteStep& step, VerdictSink& out) {
    if (step.items.size() < 2) return;
    auto found = batches_[step.role].Take(step, replicas_, kFix);
    if (found) out.Add(*std::move(found));
  }

  // Role, layer, op, group.
  using Key = std::tuple<v1::Role, std::string, std::string, std::string>;

  Site* SiteOf(const SiteStep& step, const std::string& group) {
    const Key key{step.role, step.site.layer(), step.site.op(), group};
    const auto known = sites_.find(key);
    if (known == sites_.end() && sites_.size() >= kMostSites) return nullptr;
    Site& site = sites_[key];
    if (site.step_last < 0) site.step_first = step.step;
    site.step_last = std::max(site.step_last, step.step);
    return &site;
  }

  static bool StatesGradients(const v1::Site& site) {
    return absl::StrContains(absl::AsciiStrToLower(site.layer()), "grad") ||
           absl::StrContains(absl::AsciiStrToLower(site.op()), "grad");
  }

  // True if all ranks of the list are in one block of replicas, which read the same data by design.
  bool ByDesign(const Site& site, const std::vector<size_t>& list) const {
    return std::all_of(list.begin(), list.end(), [&](size_t i) {
      return site.ranks[i] / replicas_ == site.ranks[list[0]] / replicas_;
    });
  }

  // Returns the ranks with equal values in every remembered step, and in `losses` if not nullptr.
  std::set<uint32_t> Same(const Site& site, const EqualLosses* losses,
                          std::vector<std::string>* words) const {
    std::vector<std::vector<uint32_t>> keys(site.ranks.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      for (const std::vector<uint32_t>& classes : site.classes) keys[i].push_back(classes[i]);
      if (losses != nullptr) keys[i].push_back(losses->ClassOf(site.ranks[i]));
    }
    std::set<uint32_t> ranks;
    for (const std::vector<size_t>& list : Alike(keys)) {
      if (ByDesign(site, list)) continue;
      std::vector<uint32_t> alike;
      for (const size_t i : list) alike.push_back(site.ranks[i]);
      ranks.insert(alike.begin(), alike.end());
      if (words->size() < 4) words->push_back(Capitalised(RankWords(alike)));
    }
    return ranks;
  }

  // Judges by the losses if few sums were sampled: all of these and all losses must be equal.
  void JudgeLosses(const SiteStep& step, VerdictSink& out) {
    const EqualLosses& losses = losses_[{step.role, step.site.op()}];
    for (auto& [key, site] : sites_) {
      if (std::get<0>(key) != step.role || !site.reported.empty() || !site.declared) continue;
      if (site.attempt != step.attempt || site.unclear > 0) continue;
      if (site.steps < kObservedNextToLosses || site.steps >= kObserved) continue;
      std::vector<std::string> words;
      const std::set<uint32_t> ranks = Same(site, &losses, &words);
      if (ranks.empty()) continue;
      site.reported = ranks;
      out.Add(FoundByLosses(step, key, losses, site, words));
    }
  }

  void JudgeSite(const SiteStep& step, const InputClasses& seen, bool hook, Site& site,
                 VerdictSink& out) const {
    if (site.steps < kObserved || site.classes.size() < kLast) return;
    std::vector<std::string> words;
    const std::set<uint32_t> ranks = Same(site, nullptr, &words);
    if (ranks.empty()) return;
    if (!all_sites_ && !hook && !StatesGradients(step.site)) {
      site.undeclared = true;
      return;
    }
    if (!site.reported.empty()) return;
    site.reported = ranks;
    out.Add(Found(step, seen, site, words));
  }

  static v1::Verdict FoundByLosses(const SiteStep& step, const Key& key, const EqualLosses& losses,
                                   const Site& site, const std::vector<std::string>& words) {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL);
    const std::string who = absl::StrJoin(words, "; ");
    found.Title("ranks have the same gradients: they read the same batch")
        .Explain(absl::StrFormat("%s passed the same bits to one reduction in each of the %d "
                                 "sampled steps (%d to %d), and their %s has the same bits in each "
                                 "of %d steps (%d to %d). Different batches give different bits.",
                                 who, site.steps, site.numbers.front(), site.numbers.back(),
                                 step.site.op(), losses.steps(), losses.step_first(), step.step))
        .Cause("same-batch", 0.9)
        .Measured("steps with the same loss", static_cast<double>(losses.steps()), "steps")
        .Threshold(static_cast<double>(EqualLosses::kSteps),
                   "steps, in addition to two sampled sums")
        .FalseAlarm("probability", 0x1p-64)
        .Fix(kFix)
        .Samples(losses.steps())
        .Witness("ranks", who)
        .Witness("step", static_cast<double>(step.step))
        .Assume("each rank of the group reads its own data (option replicas declares exceptions)")
        .Assume("different batches give different losses in at least every second step")
        .At(std::get<1>(key), std::get<2>(key), losses.step_first(), step.step, site.reported);
    Put(*found.verdict().mutable_details(), "steps", static_cast<double>(site.steps));
    return found.Take();
  }

  static v1::Verdict Found(const SiteStep& step, const InputClasses& seen, const Site& site,
                           const std::vector<std::string>& words) {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    const std::string who = absl::StrJoin(words, "; ");
    found.Title("ranks have the same gradients: they read the same batch")
        .Explain(absl::StrFormat("%s passed the same bits to one reduction in each of the steps "
                                 "%d, %d and %d: all sampled elements are equal, and %d of them "
                                 "are not zero. Different batches give different gradients.",
                                 who, site.numbers[0], site.numbers[1], site.numbers[2],
                                 seen.informative))
        .Cause("same-batch", 0.9)
        .Measured("ranks with the same gradients as another rank",
                  static_cast<double>(site.reported.size()), "ranks")
        .Threshold(0, "each rank has its own data")
        .Fix(kFix)
        .Samples(seen.informative)
        .Witness("ranks", who)
        .Witness("step", static_cast<double>(step.step))
        .Assume("each rank of the group reads its own data (option replicas declares exceptions)")
        .At(step.site.layer(), step.site.op(), site.numbers.front(), step.step, site.reported);
    Put(*found.verdict().mutable_details(), "steps", static_cast<double>(site.steps));
    return found.Take();
  }

  static v1::Verdict Rest(const Site& site) {
    if (site.undeclared)
      return Inconclusive(
          "not-gradients: ranks pass equal values, as in an average of copies. If these are "
          "gradients, state it by the name of the site or by option sites");
    if (site.steps == 0 && !site.why.empty()) return Inconclusive(site.why);
    if (site.unclear > 0 && site.steps - site.unclear < kObserved)
      return Inconclusive(
          "few-elements: ranks agree only in elements that are zero, too few, or all equal");
    if (site.steps < kObserved)
      return Inconclusive(
          absl::StrCat("few-steps: fewer than ", kObserved, " steps contained values"));
    return Pass("no two ranks pass equal values in consecutive steps");
  }

  std::map<v1::Role, RankBatches> batches_;
  const SeriesRoles roles_;  // stated by the user
  SiteMemo<bool> known_;     // whether the site is a loss
  std::map<std::pair<v1::Role, std::string>, EqualLosses> losses_;
  uint32_t replicas_;
  bool all_sites_;
  std::map<Key, Site> sites_;
};

}  // namespace

CatalogueEntry same_data() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<SameData>(options);
          }};
}

}  // namespace plumbline::rules
