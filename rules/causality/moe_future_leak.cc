#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/experts/experts.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/routing.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# causality/moe-future-leak

A token's expert depends on tokens that come later in its own sequence.

**Why.** In training such a router passes information about later tokens to a token. In generation
there are no later tokens, so the model uses a router with which it was never trained. With 64 experts of capacity 40 over
sequences of 4,096 tokens, drop by score can carry 64·log2(41) = 343 bits a layer from a sequence's
second half into its first. The loss looks better than it is, and nothing crashes.
`plumbline.leak_consequence` computes by how much: on the example after 2,000 steps expert choice looks 0.005
nats a token better than dropless routing with the same weights (99 % interval 0.0015 to 0.0089).

**Bad.** Capacity with drop by score: `token 17, score 0.31, lost expert 5 to token 903, score 0.42`.
Expert choice: every expert takes its C best tokens of the whole sequence.

**Good.** Dropless token choice; first come first served in time order; a stored balancing bias.

**How to fix it.**
- Megatron-LM: no `--moe-expert-capacity-factor`. `--moe-token-drop-policy position` takes the top of ties in
  0.16.1, which is not a queue. Use it only if `causality/moe-tie-order` passes with it.
- DeepSpeed: `drop_tokens=False`; with capacity, `use_rts=False`, and top-1 only (its second
  choices queue after all first choices).
- Tutel: `batch_prioritized_routing=False`, or capacity factor 0 (dropless).
- Expert choice: keep it for encoders; for a decoder use token choice with a stored bias.

**What it checks.** From a recording of one router call it rebuilds what every token's own scores would
have chosen, finds the experts that were full, and replays the policies it knows. An *inversion* is the
witness: token n was refused by a full expert that admitted a later token m of the same sequence and pool.

**Strength.** `proved` rests on recorded facts:
- capacity is a number of the router's configuration (`capacity`; `capacity_source: inferred` is none), and
  pools are recorded row by row (`pool_id`);
- a leaking policy (drop by score, batch-prioritised, rank-major, a queue out of time order, expert choice)
  replays every assignment, with 20 bits of evidence: log2 of the number of ways to keep as many of each
  full expert's candidates, minus the choices that ties leave open; of expert choice, that own thresholds hit exactly C. That own thresholds left
  the capacity exactly must have 10 bits of evidence in addition to a drop by score. No clean policy replays it;
- the policy is the configuration's own (`policy`), so that two independent sources agree;
- no stored number gives every assignment. In one pool, a stored threshold or queue position per expert
  gives the same result as the policy. Therefore other pools, micro-batches or steps of this layer must need another
  number, and the first call of a run with one pool is a hint. Nor is it one threshold for all experts, one a
  sequence, one that moves along it; and tokens are not of kinds that occur equally often.

Calls of one layer count together: if a single call is worth fewer bits, the calls so far that refused at one number, and whose
refusals one leaking policy gives, may be worth 7 in all (an exhibited capacity each with another expert or number of candidates).

Everything else with 7 bits is `heuristic`, a warning whose fix lists what to record, or what to run (`check_router`, `moe-intervention.replay=on`), for a proof or an acquittal: an exhibited
capacity (Σ ½·log2(2πC(1−C/candidates)) over refusing cells without the largest), however many bits, since data have structure; pools by metadata; *pairs*, refusals that no policy explains (a draw,
ties, a race), worth -N·log2(1-f): another cause would have hit the N choices of experts below capacity, all kept, at the rate f at which it hit full ones; balanced assignment; scores that are
normalised over the tokens (every expert has the same sum of scores, squares or exponentials over the call, each pool or each sequence; or a softmax over the tokens gives every choice; not if half of
the rows nearly repeat, because an earlier batch of such data has nearly these sums: 0 of 5,000 with stored sums, 4,996 of 5,000 without); a queue whose capacity differs between calls of one size and
rises with the tokens that some expert was offered (24 bits, from the orders of eleven capacities or more). Fewer bits stay inconclusive (`capacity-differs`): schedules, draws and sources with a
capacity each give orders by chance. Of ten innocent kinds none of 2,000 runs each has 24 bits, but 2 of 20,000 waves (capacity and skew of the loads with one period) have 18 to 23. After 64 calls 24
bits are reached in 128 of 200 runs (a share of the largest load), 59 (the second largest) and 66 (the load that nine of ten experts do not exceed).

However many bits, one pool without such facts is no error: of 669 recordings of clean routers 45 have an exact replay of a leaking policy with
100 bits and more (numbers stored for the recorded text).

If the configuration names a queue (`policy: fifo-capacity`) with its capacity, and no queue in time order gives the refusals, that is a
warning of its own (`declared-queue`): it is not known what it is, only that it is not what was declared. Refusals of the
tokens' own, which thin what comes to a queue, must not explain them better.

Clean replays: first come first served over every time-ordered queue, over equal chunks (the short one first or last), by sequence, over the first r
choices, with a capacity per choice rank. A pool whose rows are all prompts (`region`) is left out. While a cut into unequal pieces, a table of positions, an even or sliding budget, or all-or-nothing
admission explains the refusals, pairs prove nothing. Under recorded pools a cut with as much free as there is to explain, or a table that would have
met the capacity by accident (2^-7), leaves a hint.

**Inconclusive when** the configuration states `capacity: none` and choices were refused, an expert kept nothing and all else would pass (a null expert,
or one left out for its load), the recorded policy is not the one that passes, all rows of a sequence have the same scores (they are not the tokens'
own), sequence ids or positions are missing or occur twice, more than half of the rows are tied, NaN or infinite, refusals or what experts hold
contradict the capacity, ranks of a shared pool are missing, randomness of the token's own was declared that the scores do not hold, own scores do not
explain the choices, ids are redacted and the pool spans ranks whose sequences have no known order (`order-redacted`) or which used different keys
(`keys-differ`), or a clean and a leaking policy both fit. The reasons by name. Unreadable: `bad-tensor` `bad-capacity` `bad-groups` `bias-not-finite`
`k-exceeds-experts` `k-too-large` `masks-differ` `no-choices` `no-scores` `no-top-k` `no-sample` `too-many-pools`. Ranks: `missing-ranks`
`pool-spans-ranks` `ranks-differ` `sequence-ids-reused`. Rows: `no-rows` `no-sequence-ids` `no-positions` `repeated-position` `tied` `non-finite`
`scores-not-own` `scores-normalised`. Choices: `choices-unexplained` `prices-or-bias` `bias-captured-after` `bias-differs` `randomness-declared`
`kept-outside-choice` `refusals-unknown` `nothing-kept` `no-keep-mask`. Capacity: `capacity-none` `capacity-differs` `capacity-exceeded`
`refused-below-capacity` `no-expert-full` `pool-unrecorded` `too-many-cuts`. Evidence: `few-bits` `few-refusals` `one-cell` `own-threshold` `table`
`by-position` `even-by-structure` `clean-pattern` `order-unexplained` `two-policies` `inversions-unexplained` `policy-differs`.

**What it cannot see.** Drops by score per device, overflow that is re-routed, anything without a full expert: inconclusive.

**Cost.** None in the trainer beyond the routing probe's samples; offline linear in tokens × experts.

**Sources.** Expert choice: Zhou et al. 2022. Capacity and drops: GShard (2020), Switch (2021), Riquelme et al. 2021 (batch-prioritised).
)page";

constexpr RuleInfo kInfo = {"causality/moe-future-leak",
                            "an assignment depends on later tokens",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            kRoutingOptions};

class MoeFutureLeak : public Rule {
 public:
  explicit MoeFutureLeak(const Options& options)
      : proof_bits_(options.Number("proof-bits")), hint_bits_(options.Number("hint-bits")) {}

  bool judges_late() const override { return true; }
  void Judge(const SiteStep& step, VerdictSink& out) override {
    const auto routes = [](const Item& item) { return item.evidence->has_routing(); };
    if (std::none_of(step.items.begin(), step.items.end(), routes)) return;
    if (step.site.op() == kLoadsOp) return;  // these sites never keep rows
    unsampled_.try_emplace({step.site.layer(), step.site.op()}, step.step);
    const auto analyses = AnalyseRouting(step);
    if (!step.late) Remember(step, analyses);
    for (size_t i = 0; i < analyses.size(); ++i) {
      const Item& item = step.items[i];
      if (analyses[i] == nullptr) {
        const std::string& why = item.evidence->routing().no_sample_reason();
        if (why.empty()) continue;
        v1::Verdict verdict = Inconclusive("no-sample: " + why);
        verdict.mutable_site()->add_ranks(item.source->rank());
        out.Add(std::move(verdict));
      } else {
        v1::Verdict verdict = JudgeCall(step, *analyses[i]);
        for (uint32_t rank : analyses[i]->ranks) verdict.mutable_site()->add_ranks(rank);
        out.Add(std::move(verdict));
      }
      unsampled_[{step.site.layer(), step.site.op()}] = kSampled;
    }
  }

  // Reports, once for each site, that its rows were never captured, so that it was never judged.
  void JudgeRun(const RunSummary&, VerdictSink& out) override {
    for (const auto& [site, first_step] : unsampled_) {
      if (first_step == kSampled) continue;
      v1::Verdict verdict =
          Inconclusive("no-sample: no step of this site was recorded with its rows");
      verdict.mutable_site()->set_layer(site.first);
      verdict.mutable_site()->set_op(site.second);
      verdict.mutable_site()->set_step_first(first_step);
      verdict.mutable_site()->set_step_last(first_step);
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(4);
    archive(unsampled_);
    if (version >= 2) archive(stored_);
    if (version >= 3) archive(together_);
    if (version >= 4) archive(capacities_);
  }

 private:
  static constexpr int64_t kSampled = -1;

  // The key, (role, layer, op, policy), of stored numbers that would also have given every call.
  using Key = std::tuple<uint32_t, std::string, std::string, std::string>;
  static Key KeyOf(const SiteStep& step, const RoutingAnalysis& a) {
    return {static_cast<uint32_t>(step.role), step.site.layer(), step.site.op(), a.policy};
  }
  void Remember(const SiteStep& step,
                const std::vector<std::shared_ptr<const RoutingAnalysis>>& analyses) {
    for (const auto& a : analyses) {
      if (a == nullptr) continue;
      if (!a->stored.empty()) stored_[KeyOf(step, *a)].Take(a->stored);
      together_[SiteKeyOf(step, *a)].Take(*a);
      capacities_[SiteKeyOf(step, *a)].Take(*a);
    }
  }

  // Role, layer, op and mode: an evaluation may have another capacity than the training.
  using SiteKey = std::tuple<uint32_t, std::string, std::string, std::string>;
  static SiteKey SiteKeyOf(const SiteStep& step, const RoutingAnalysis& a) {
    return {static_cast<uint32_t>(step.role), step.site.layer(), step.site.op(),
            a.blocked.empty() ? a.c.routing->config().mode() : ""};
  }
  // Returns null if the calls are not evidence, or if this call is late or not among them.
  const CallsTogether* Together(const SiteStep& step, const RoutingAnalysis& a) const {
    const auto calls = together_.find(SiteKeyOf(step, a));
    if (step.late || calls == together_.end() || calls->second.calls() < 2) return nullptr;
    return calls->second.policy() == a.leak()->Describe() ? &calls->second : nullptr;
  }
  // Returns true if earlier steps exclude stored rules. A late call is judged alone.
  bool ExcludedBefore(const SiteStep& step, const RoutingAnalysis& a) const {
    const auto rules = stored_.find(KeyOf(step, a));
    return !step.late && rules != stored_.end() && rules->second.excluded();
  }

  v1::Verdict JudgeCall(const SiteStep& step, const RoutingAnalysis& a) const {
    v1::Verdict verdict = a.blocked.empty() ? Checked(a, Decide(step, a)) : Inconclusive(a.blocked);
    *verdict.mutable_details() = a.Details();
    *verdict.mutable_assumptions() = {a.assumptions.begin(), a.assumptions.end()};
    return verdict;
  }

  v1::Verdict Decide(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (c.judged_rows == 0) return Inconclusive("no-rows: every row is padding");
    if (c.prompt_only) return PromptOnly();
    if (a.zero_decides) return DecideZero(step, a);
    if (2 * (c.tied + c.non_finite) > c.judged_rows) {
      return Inconclusive(absl::StrCat(c.non_finite > c.tied ? "non-finite" : "tied", ": ", c.tied,
                                       " rows with tied scores and ", c.non_finite,
                                       " with NaN or infinite scores, of ", c.judged_rows,
                                       "; more than half cannot be replayed"));
    }
    if (a.balance.found()) return FoundBalance(step, a);
    if (a.token_axis.found(proof_bits_) && c.ordered()) return FoundTokenAxis(step, a);
    if (c.kept_outside_choice) return DecideColumns(step, a);
    if (c.dropped == 0) return DecideDropless(step, a);
    return DecideCapacity(step, a);
  }

  v1::Verdict DecideColumns(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (!a.columns()) {
      return Inconclusive(
          "kept-outside-choice: tokens are assigned to experts that their own scores did not "
          "choose, and no known policy explains it");
    }
    if (!c.ordered()) return NoOrder(c);
    if (OwnDraws(c.routing->config())) return RandomChoice(c);
    if (const std::string other = ColumnsOtherwise(c, a.column); !other.empty())
      return Inconclusive(other);
    if (a.structured && !DeclaresCapacity(c.routing->config())) return EvenByStructure();
    const double bits = a.column.bits;
    if (!(bits >= hint_bits_) || !a.column.witness.found()) {
      return Inconclusive(
          absl::StrFormat("few-bits: expert choice explains every assignment, with %.1f bits "
                          "against own thresholds; the rule needs %.0f",
                          bits, hint_bits_));
    }
    return Found(step, a, bits >= proof_bits_, bits, a.column.witness,
                 absl::StrFormat("In every pool each expert has exactly %d tokens, its best by %s, "
                                 "while tokens have different numbers of experts. The equal counts "
                                 "are %.1f bits of evidence against own thresholds.",
                                 a.column.capacity, a.column.variant, bits));
  }

  v1::Verdict FoundBalance(const SiteStep& step, const RoutingAnalysis& a) const {
    if (OwnDraws(a.c.routing->config())) return RandomChoice(a.c);
    return Found(step, a, false, a.balance.price_bits, RefusalPair{}, WhyBalance(a.balance));
  }

  v1::Verdict FoundTokenAxis(const SiteStep& step, const RoutingAnalysis& a) const {
    if (OwnDraws(a.c.routing->config())) return RandomChoice(a.c);
    return Found(step, a, false, a.token_axis.bits, RefusalPair{}, a.token_axis.Describe());
  }

  v1::Verdict DecideCapacity(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (!c.ordered()) return NoOrder(c);
    const bool none = ExcludesCapacity(c.routing->config());
    if ((none || !a.first_come.best.fits) && !a.saturation.contradiction.empty()) {
      return Inconclusive(a.saturation.contradiction);
    }
    if (UnrecordedDraws(c)) return RandomChoice(c);
    if (a.first_come.best.fits) return a.rival() ? TwoPolicies(a) : DecideQueue(step, a);
    if (a.library_ties.bits >= proof_bits_) return FoundTies(step, a);
    if (!a.first_come.searched) {
      return Inconclusive(
          "too-many-cuts: pools were not recorded (pool_id), and there are too many possible cuts "
          "into chunks to try");
    }
    if (a.inversions.inversions == 0) return NoInversion(step, a);
    return a.leak() != nullptr && !a.by_ties() ? DecideReplayed(step, a) : DecidePairs(step, a);
  }

  v1::Verdict FoundTies(const SiteStep& step, const RoutingAnalysis& a) const {
    if (a.inversions.inversions == 0) return NoInversion(step, a);
    return Found(step, a, false, a.library_ties.bits, a.inversions.any, TopOfMask(a));
  }

  v1::Verdict DecideQueue(const SiteStep& step, const RoutingAnalysis& a) const {
    const auto history = capacities_.find(SiteKeyOf(step, a));
    if (!step.late && history != capacities_.end()) {
      if (auto verdict = history->second.Judge(a, hint_bits_); verdict.has_value()) return *verdict;
    }
    return DecideClean(step, a, proof_bits_);
  }

  // Returns the bits that a hint needs in addition to an inversion. These are fewer if the
  // configuration names the policy, which is no proof.
  double HintBits(const RoutingAnalysis& a) const {
    const v1::RoutingConfig& config = a.c.routing->config();
    const bool named = NamesNoQueue(config) && DeclaresCapacity(config) && a.firm_pools();
    return named ? std::min(kNamedBits, hint_bits_) : hint_bits_;
  }

  // Returns the verdict if a leaking policy gives every assignment and no clean policy does.
  v1::Verdict DecideReplayed(const SiteStep& step, const RoutingAnalysis& a) const {
    if (a.structured && !DeclaresCapacity(a.c.routing->config())) return EvenByStructure();
    const RankedReplay& leak = *a.leak();
    const double bits = std::min(leak.bits, a.capacity_bits);
    if (!(std::min(leak.raw_bits, a.capacity_bits) >= HintBits(a))) {
      if (const CallsTogether* calls = Together(step, a);
          calls != nullptr &&
          std::min(calls->policy_bits(), calls->capacity_bits()) >= hint_bits_) {
        return Found(step, a, false, std::min(calls->policy_bits(), calls->capacity_bits()),
                     a.inversions.any, calls->Describe());
      }
      return Inconclusive(absl::StrFormat(
          "few-bits: %d inversions; %s gives every assignment, with %.1f bits%s; the rule needs "
          "%.0f",
          a.inversions.inversions, leak.Describe(), leak.raw_bits, CapacityBits(a), HintBits(a)));
    }
    // Own thresholds separate scores too, so it must not be chance that full cells hold C tokens.
    if (leak.luck_bits < kLuckBits && OneCellAlone(a.saturation)) return OneCell(leak.luck_bits);
    const bool enough = bits >= proof_bits_ && leak.luck_bits >= kLuckBits;
    const PairCertificate& pair = a.certificate;
    return Found(
        step, a, enough, bits, pair.pair.found() ? pair.pair : a.inversions.any,
        absl::StrFormat(
            "For %d refused choices, the same full expert later admitted a token of the same "
            "sequence. %s replays every assignment (%.1f bits); first come first served does not.",
            a.inversions.inversions, Capitalised(leak.Describe()), leak.raw_bits));
  }

  // Returns the verdict if no policy gives the refusals: the pairs decide. There is no proof,
  // because draws cannot be replayed.
  v1::Verdict DecidePairs(const SiteStep& step, const RoutingAnalysis& a) const {
    if (OwnDraws(a.c.routing->config())) return RandomChoice(a.c);
    if (a.patterns.any()) {
      return CleanPattern(a);
    }
    const bool counted = a.saturation.basis == Saturation::Basis::kDeclared && !a.c.holders_unknown;
    const bool guessed = !counted && a.c.pool_basis == PoolBasis::kUnrecorded;
    if (guessed) {
      return Inconclusive(
          absl::StrCat("pool-unrecorded: ", a.inversions.inversions,
                       " inversions, but capacity is not declared and pools are not recorded "
                       "(pool_id); a cut into chunks could explain them"));
    }
    const double bits = std::min(a.pair_bits(), a.capacity_bits);
    const double requested = HintBits(a);
    const bool speaks = a.pairs_speak(requested) && a.capacity_bits >= requested;
    if (!speaks && counted && ContradictsItsQueue(a)) return NoSuchQueue(a);
    if (!a.pairs_speak(requested) || !(a.capacity_bits >= requested)) {
      return PairsUnexplained(a);
    }
    return Found(
        step, a, false, bits, a.certificate.pair,
        absl::StrFormat(
            "For %d refused choices, the same full expert later admitted a token of the same "
            "sequence and pool. No score and no queue in time order gives these refusals; %s.%s",
            a.inversions.inversions, WhyCapacity(a, bits), a.patterns.doubt()));
  }

  // Returns a finding. It is proved if `enough` is true and the recording leaves no doubt.
  v1::Verdict Found(const SiteStep& step, const RoutingAnalysis& a, bool enough, double bits,
                    const RefusalPair& pair, const std::string& explanation) const {
    const bool before = ExcludedBefore(step, a);
    const bool proved = enough && a.doubts(before).empty();
    const RoutingCause& cause = CauseOf(a.cause);
    FindingBuilder found(proved ? v1::LEVEL_ERROR : v1::LEVEL_WARNING,
                         proved ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
    found.Title(absl::StrCat("routing depends on later tokens: ", cause.title))
        .Explain(explanation)
        .Cause(cause.id, a.cause == "unknown" ? 0 : a.explained_share)
        .Measured("inversions",
                  1000.0 * static_cast<double>(a.inversions.inversions) /
                      static_cast<double>(a.c.judged_rows),
                  "per 1,000 tokens")
        .Threshold(0, "a queue in time order has none")
        .Samples(static_cast<uint64_t>(a.c.judged_rows));
    *found.finding().mutable_witness() = Witness(a, pair);
    found.Witness("bits", bits)
        .Fix(proved ? std::string(cause.fix) : absl::StrCat(cause.fix, " ", a.HowToSettle(before)));
    return found.Take();
  }

  double proof_bits_;
  double hint_bits_;
  std::map<std::pair<std::string, std::string>, int64_t> unsampled_;  // a first step, or kSampled
  std::map<Key, StoredRules> stored_;
  std::map<SiteKey, CallsTogether> together_;
  std::map<SiteKey, CapacityHistory> capacities_;
};

}  // namespace

CatalogueEntry moe_future_leak() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MoeFutureLeak>(options);
          }};
}

}  // namespace plumbline::rules
