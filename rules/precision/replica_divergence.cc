#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/collective/collective.h"
#include "analysis/frame/frame.h"
#include "analysis/replicas/replicas.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/replica-divergence

Copies of one tensor on several ranks must have the same bits, but they differ.

**Why.** Data-parallel ranks apply one update to one set of weights, and nothing compares them again. One
flipped bit of 2^34 on one of 64 ranks (bit 30 turns 0.02 into 6.8e36, bit 22 turns it into 0.0278) never
appears in a loss that is averaged over them; ranks that stopped sharing gradients train 64
models, and a checkpoint holds rank 0's.

**Bad.** `rank 2 differs from ranks 0, 1, 3: element 8,841 is 0x3ca3d70a there, 0x3ce3d70a here`.

**Good.** One digest.

**How to fix it.**
- One rank, one element, one bit: hardware. Take the node out, run its memory test (DCGM `dcgmi diag -r 3`,
  ECC counters of `nvidia-smi -q`), reload that rank's weights from another replica.
- All elements: gradients are not shared. PyTorch DDP: no `no_sync()` left open, no parameters added after
  wrapping, `find_unused_parameters`; Megatron-LM: `--check-weight-hash-across-dp-replicas-interval`, the
  norms' gradients under sequence parallelism; FSDP HYBRID_SHARD: the replicate group.
- Buffers: `broadcast_buffers=True`; seeds that differ by rank where they must not.

**What it checks.** The 128-bit digest of a tensor (a sum over its elements of a hash of index and bits) on
each rank of a step, micro-batch by micro-batch. Ranks that declare one `replicas` group hold copies. A strict
majority names the odd ranks; of two, both are named and neither is accused. With sampled values the first
differing element is named, its bits on either side and how many of them differ. The results of a sampled
reduction are copies too: each rank's values at the sampled elements are compared, where half of them at least are
the same (a reduce to one rank, a scatter or an average that ranks keep apart shows none), and where only one
all-reduce explains them: most ranks (or a replay) have one result, which a replay gives, or which is the sum over all ranks within its bound
while the sums over every contiguous or strided group are twice as far from it; and half of the differences are larger than
rounding explains. If the results of different ranks differ however much, and replays give them bit for bit, each from all ranks' inputs,
the ranks summed in different ways (cause `summed-by-rank`). If a trainer records the
series `weights_checksum` (`run.watch` does, under DistributedDataParallel: 48 bits over all weights that ranks hold
copies of, after each update, or as often as it stays cheap), a divergence is reported in the first step in
which the ranks' numbers differ, with the last in which they agreed; the next observation of the weights names the tensor.
Several processes that train without a wrapper and sum nothing over their process group (`run.watch` sends a checksum of all weights before
the first update, `unsummed/before`, and after the 4th, 8th, 16th, ..., `unsummed/after`): a warning at the end of the run if they began with the
same bits and no two of them agree since.

**Strength.** `proved`: different digests are different bits. Undeclared tensors are judged only where the
evidence itself shows that they are copies: they were equal, not constant, and changed together in
earlier steps; or they were so once, or a strict majority of at least three ranks is so now, and the odd one agrees
with it on 63 of 64 of at least 64 sampled elements that are not zero.

**Inconclusive when** tensors of undeclared ranks differ and nothing shows that they are copies (`not-declared`: shards differ
by design, and so do replicas between the steps of a training that synchronises now and then: set `replicas`
where they must not), declared copies differ in shape or dtype (`not-comparable`), or each copy holds as many NaN (`nan`) and they differ in
nothing else that was sampled: a NaN's bits mean nothing. Results of a reduction that agree in part are not judged if they differ by
rounding alone (`differ-by-rounding`: groups of ranks with nearly equal inputs, or a small part that each rank adds, do the same), if nothing
excludes sums over some of the ranks (`kept-apart`), or without the inputs of all ranks (`no-inputs`).

**What it cannot see.** Copies that went wrong together; a rank that reports nothing; results of a reduction that
differ in elements that were not sampled, or in the last bits of few elements.

**Cost.** The digest is part of the tensor's statistics; a few hundred bytes a site are kept.

**Sources.** Hochschild et al., "Cores that don't count", 2021; Meta, "The Llama 3 Herd of Models", 2024, on
silent data corruption.
)page";

constexpr RuleInfo kInfo = {"precision/replica-divergence",
                            "replicas of one tensor differ",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

constexpr uint64_t kFewInformative = 64;

// The history of one site's undeclared tensors.
struct History {
  std::optional<Digest> equal;  // the last content on which all ranks agreed
  bool lockstep = false;        // the ranks agreed on at least two different contents
  std::set<uint32_t> reported;  // odd ranks of the last reported divergence
  int64_t step = 0;             // last step with this divergence
  void Persist(Archive& a) { a(equal, lockstep, reported, step); }
};

// Returns true for roles whose tensors are copies in some kinds of parallelism and shards in
// others. Activations differ between ranks by design.
bool MayBeCopies(const v1::TensorState& state) {
  const std::string& role = state.role();
  return role.empty() || role == "weight" || role == "gradient";
}

// Returns true if copies almost agree. One step after a start as copies, separately trained 16-bit
// experts also agree in most elements. A larger difference would be another kind of finding.
bool NearlyAgree(const std::optional<Difference>& d) {
  return d && d->informative >= kFewInformative &&
         64 * (d->informative - d->agree) <= d->informative;
}

class ReplicaDivergence : public ScalarRule {
 public:
  bool ReadsScalar(const v1::Site& site) const override {
    return CopyChecksums::Is(site) || PartedCopies::Is(site);
  }

  // Reports every divergence once. Reports a pass or inconclusive only if nothing diverges.
  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (PartedCopies::Is(step.site)) return parted_.Take(step);
    if (CopyChecksums::Is(step.site)) {
      if (std::optional<v1::Verdict> verdict = checksums_.Judge(step)) out.Add(*std::move(verdict));
      return;
    }
    std::optional<v1::Verdict> other;
    bool diverged = false;
    for (const Copies& copies : GroupCopies(step)) {
      std::optional<v1::Verdict> verdict = JudgeCopies(step, copies, &diverged);
      if (!verdict) continue;
      if (verdict->kind() == v1::Verdict::KIND_FINDING) {
        out.Add(*std::move(verdict));
      } else if (!other || verdict->kind() < other->kind()) {
        other = std::move(verdict);
      }
    }
    for (const JoinedReduction& joined : *JoinReductions(step)) {
      std::optional<v1::Verdict> verdict = JudgeOutputs(step, joined, &diverged);
      if (!verdict) continue;
      if (verdict->kind() == v1::Verdict::KIND_FINDING) {
        out.Add(*std::move(verdict));
      } else {
        other = std::move(verdict);
      }
    }
    if (other && !diverged) out.Add(*std::move(other));
    for (v1::Verdict& verdict : std::exchange(explained_, {})) out.Add(std::move(verdict));
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (v1::Verdict& verdict : parted_.Judge()) out.Add(std::move(verdict));
  }

  // explained_ is empty between two calls of Judge.
  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(3, 1);
    archive(histories_, reported_outputs_);
    if (version >= 2) checksums_.Persist(archive);
    if (version >= 3) parted_.Persist(archive);
  }

 private:
  std::optional<v1::Verdict> JudgeCopies(const SiteStep& step, const Copies& copies,
                                         bool* diverged) {
    const bool declared = !copies.replicas.empty();
    if (!declared && !MayBeCopies(*copies.states[0])) return std::nullopt;
    if (!copies.comparable()) {
      return Inconclusive(
          declared ? "not-comparable: declared replicas differ in shape or dtype, or lack a "
                     "digest"
                   : "not-declared: tensors of several ranks differ in shape; if they are copies, "
                     "set option replicas");
    }
    History& history = HistoryOf(step, copies);
    if (copies.equal()) {
      history.reported.clear();
      if (copies.varied()) {
        history.lockstep |= history.equal && *history.equal != copies.digests[0];
        history.equal = copies.digests[0];
      }
      return Pass("the copies are equal", Describe(copies));
    }
    const std::optional<size_t> majority = copies.Majority();
    const size_t reference = majority.value_or(0);
    std::set<uint32_t> odd;
    size_t example = reference;
    for (size_t i = 0; i < copies.ranks.size(); ++i) {
      const bool differs = copies.digests[i] != copies.digests[reference];
      if (differs || !majority) odd.insert(copies.ranks[i]);
      if (differs && example == reference) example = i;
    }
    const auto difference = Compare(*copies.states[reference], *copies.states[example]);
    if (copies.alike_in_nan() && (!difference || difference->differ == 0)) {
      return Inconclusive(
          "nan: each copy has the same number of NaN, whose bits have no meaning, and no other "
          "difference is known (precision/non-finite finds their origin)",
          Describe(copies));
    }
    const std::string basis = Basis(copies, history, majority.has_value(), difference);
    if (basis.empty()) {
      // If tensors differ without a finding and are equal later, they are synchronised from time to
      // time, by design.
      history.equal.reset();
      return Inconclusive(
          "not-declared: tensors of several ranks differ, as shards do; if they are copies, set "
          "option replicas",
          Describe(copies));
    }
    *diverged = true;
    if (history.reported == odd) return std::nullopt;  // the same incident
    history.reported = odd;
    v1::Verdict found = Found(copies, odd, majority, example, difference, declared ? "" : basis);
    for (v1::Verdict& verdict :
         checksums_.Explained(step, odd, absl::StrCat(step.site.layer(), "/", step.site.op()),
                              found.finding().cause())) {
      explained_.push_back(std::move(verdict));
    }
    return found;
  }

  // The result of a reduction is a copy on every rank that gets it.
  std::optional<v1::Verdict> JudgeOutputs(const SiteStep& step, const JoinedReduction& joined,
                                          bool* diverged) {
    std::optional<OutputSplit> split = SplitOutputs(joined);
    std::optional<v1::Verdict> verdict;
    if (!split || !split->equal()) verdict = JudgeDifferent(step, joined, split);
    if (!split) return std::nullopt;
    std::set<uint32_t>& reported = reported_outputs_[{step.attempt, step.role, step.site.layer(),
                                                      step.site.op(), joined.group}];
    const std::set<uint32_t> odd(split->odd.begin(), split->odd.end());
    if (odd.empty()) {
      reported.clear();
      google::protobuf::Struct details;
      Put(details, "ranks", static_cast<double>(split->ranks.size()));
      Put(details, "values", static_cast<double>(split->compared));
      return Pass("every rank got the same result", std::move(details));
    }
    if (!verdict->has_finding()) return verdict;
    *diverged = true;
    if (reported == odd) return std::nullopt;
    reported = odd;
    return verdict;
  }

  // Sets `split` if replays find that results differ.
  static std::optional<v1::Verdict> JudgeDifferent(const SiteStep& step,
                                                   const JoinedReduction& joined,
                                                   std::optional<OutputSplit>& split) {
    SharedResult shared = SharedResult::kNoInputs;
    std::optional<OutputSplit> replayed;
    for (const auto& a : AnalyseReductions(step)) {
      if (a->joined != &joined) continue;
      if (split) shared = FindShared(*a, *split);
      if (shared != SharedResult::kYes) replayed = SplitReplayed(*a);
    }
    if (replayed) split = replayed;
    if (replayed || shared == SharedResult::kYes)
      return ResultsDiffer(joined, *split, replayed.has_value());
    if (!split) return std::nullopt;
    if (shared == SharedResult::kByRounding)
      return Inconclusive(
          "differ-by-rounding: the ranks' results differ by little more than their rounding, as "
          "do those of groups with nearly equal inputs, or after a small part of each rank");
    if (shared == SharedResult::kByGroup)
      return Inconclusive(
          "kept-apart: the ranks' results agree in part, and nothing excludes that they are sums "
          "over some of the ranks");
    return Inconclusive(
        "no-inputs: the ranks' results differ, and without the inputs of all ranks nothing shows "
        "that they come from one all-reduce");
  }

  // Returns the history of a site. Bounds the memory, because names may occur only once (a new
  // group per step).
  History& HistoryOf(const SiteStep& step, const Copies& copies) {
    constexpr size_t kMostHistories = size_t{1} << 18;
    if (histories_.size() >= kMostHistories) {
      std::erase_if(histories_, [&](const auto& entry) { return entry.second.step != step.step; });
      if (histories_.size() >= kMostHistories) histories_.clear();
    }
    History& history = histories_[{step.attempt, step.role, step.site.layer(), step.site.op(),
                                   copies.replicas, copies.call}];
    history.step = step.step;
    return history;
  }

  // Returns the reason to assume that the ranks hold copies. If there is none, returns "".
  static std::string Basis(const Copies& copies, const History& history, bool majority,
                           const std::optional<Difference>& difference) {
    if (!copies.replicas.empty()) return "declared";
    if (history.lockstep)
      return "the ranks hold copies: they were equal in earlier steps and changed together";
    if (!NearlyAgree(difference)) return "";
    if (history.equal)
      return "the ranks hold copies: they were equal in an earlier step and nearly all elements "
             "still are";
    if (majority && copies.ranks.size() >= 3 && copies.varied())
      return "the ranks hold copies: a majority is equal, and nearly all elements of the other are";
    return "";
  }

  static std::string Cause(const std::optional<Difference>& d) {
    if (!d) return "unknown";
    if (d->differ == 0) return "few-elements";
    if (d->whole && d->differ == 1) return d->flipped_bits == 1 ? "bit-flip" : "one-element";
    return 2 * d->differ > d->compared ? "unsynchronised" : "part";
  }

  static std::string DifferenceText(const Copies& copies, size_t reference, size_t example,
                                    const std::optional<Difference>& d) {
    if (!d) return " The sampled elements of the two do not overlap.";
    if (d->differ == 0)
      return absl::StrFormat(" All %d sampled elements are equal, so few elements differ.",
                             d->compared);
    return absl::StrFormat(
        " %d of %d %selements differ, first %d: %s (%.9g) on rank %d, %s (%.9g) on rank %d, %d %s "
        "apart.",
        d->differ, d->compared, d->whole ? "" : "sampled ", d->element, d->bits_a, d->value_a,
        copies.ranks[reference], d->bits_b, d->value_b, copies.ranks[example], d->flipped_bits,
        d->flipped_bits == 1 ? "bit" : "bits");
  }

  static v1::Verdict Found(const Copies& copies, const std::set<uint32_t>& odd,
                           std::optional<size_t> majority, size_t example,
                           const std::optional<Difference>& d, const std::string& assumption) {
    const std::string names = RankList(odd);
    const bool flip = Cause(d) == "bit-flip" || Cause(d) == "one-element";
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found
        .Title(majority ? absl::StrCat(names, odd.size() == 1 ? " holds" : " hold",
                                       " a different copy than the other ranks")
                        : absl::StrCat(names, " hold different copies"))
        .Explain(absl::StrCat(
            majority ? absl::StrFormat("%d of %d ranks have the same digest; %s %s.",
                                       copies.ranks.size() - odd.size(), copies.ranks.size(), names,
                                       odd.size() == 1 ? "another" : "others")
                     : absl::StrFormat("No majority of the %d ranks has the same digest, so the "
                                       "correct copy is not known.",
                                       copies.ranks.size()),
            DifferenceText(copies, majority.value_or(0), example, d)))
        .Cause(Cause(d), flip ? 0.9 : 0.5)
        .Measured("ranks that differ", static_cast<double>(odd.size()), "ranks")
        .Threshold(0, "copies are the same bits")
        .Fix(flip && !majority
                 ? "Test the memory of these ranks (dcgmi diag -r 3, ECC counters); reload the "
                   "weights of all from a checkpoint that is known to be good."
             : flip
                 ? "Test that rank's memory (dcgmi diag -r 3, ECC counters), reload its weights "
                   "from another replica."
                 : "Find what is not synchronised: DDP no_sync, parameters added after wrapping, "
                   "Megatron-LM --check-weight-hash-across-dp-replicas-interval, seeds, buffers.");
    for (const uint32_t rank : odd) found.verdict().mutable_site()->add_ranks(rank);
    found.Samples(copies.states[0]->summary().count());
    google::protobuf::Struct& witness = *found.finding().mutable_witness();
    Put(witness, "digest", DigestText(copies.digests[majority.value_or(0)]));
    Put(witness, "other_digest", DigestText(copies.digests[example]));
    if (d && d->differ > 0) {
      Put(witness, "element", static_cast<double>(d->element));
      Put(witness, "bits", d->bits_a);
      Put(witness, "other_bits", d->bits_b);
      Put(witness, "flipped_bits", static_cast<double>(d->flipped_bits));
    }
    *found.verdict().mutable_details() = Describe(copies);
    if (!assumption.empty()) found.verdict().add_assumptions(assumption);
    return found.Take();
  }

  static std::string DigestText(const Digest& d) {
    return absl::StrFormat("%016x%016x", d.high, d.low);
  }

  static google::protobuf::Struct Describe(const Copies& copies) {
    google::protobuf::Struct details;
    Put(details, "ranks", static_cast<double>(copies.ranks.size()));
    Put(details, "digests",
        static_cast<double>(std::set(copies.digests.begin(), copies.digests.end()).size()));
    Put(details, "replicas", copies.replicas.empty() ? "not declared" : copies.replicas);
    return details;
  }

  using Key = std::tuple<uint32_t, v1::Role, std::string, std::string, std::string, uint32_t>;
  std::map<Key, History> histories_;
  CopyChecksums checksums_;
  PartedCopies parted_;
  std::vector<v1::Verdict> explained_;  // verdicts of one call of Judge
  // Odd ranks of the last divergence of reductions, by (attempt, role, layer, op, group).
  std::map<std::tuple<uint32_t, v1::Role, std::string, std::string, std::string>,
           std::set<uint32_t>>
      reported_outputs_;
};

}  // namespace

CatalogueEntry replica_divergence() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<ReplicaDivergence>();
          }};
}

}  // namespace plumbline::rules
