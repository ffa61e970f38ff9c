#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rules/catalogue.h"
#include "rules/lib/routing_analysis.h"
#include "rules/lib/routing_options.h"
#include "rules/lib/routing_reasons.h"
#include "rules/lib/verdicts.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# causality/moe-future-leak

A token's expert depends on tokens that come later in its own sequence.

**What it checks.** From a recording of one router call it rebuilds what every token's own scores would
have chosen, finds the experts that were full, and looks for an *inversion*: token n was refused by a
full expert that admitted a later token m of the same sequence and pool. First come, first served in
time order never shows one. It also replays the policies it knows on the recorded scores: expert choice,
drop by score, first come first served.

**Why.** In training such a router tells a token something about its future; in generation the future is
not there, so the model meets a router it was never trained with. With 64 experts of capacity 40 over
sequences of 4,096 tokens, drop by score can carry 64·log2(41) = 343 bits a layer from a sequence's
second half into its first. The loss looks better than it is, and nothing crashes.

**Bad.** Capacity with drop by score: `token 17, score 0.31, lost expert 5 to token 903, score 0.42`.
Expert choice: every expert takes its C best tokens of the whole sequence.

**Good.** Dropless token choice; first come first served in time order; a stored balancing bias.

**How to fix it.**
- Megatron-LM: `--moe-token-drop-policy position` instead of `probs`, or no `--moe-expert-capacity-factor`.
- DeepSpeed: `drop_tokens=False`; with capacity, `use_rts=False`, and top-1 only (its second choices
  queue behind all first choices).
- Tutel: `batch_prioritized_routing=False`, or capacity factor 0 (dropless).
- Expert choice: keep it for encoders; for a decoder use token choice with a stored bias.

**Strength.** `proved`: the leaking policy replayed on the scores gives every assignment, no clean one
does, both that and the capacity are worth at least 20 bits (a declared capacity: two refusing experts
or more hold exactly it, or one where that is worth 7), and there is an inversion for a witness. Expert choice: the equal counts are
worth 20 bits and `pool_id` is recorded. `heuristic`, a warning: at least 7 bits. Otherwise
`inconclusive`; an inversion alone accuses nobody.

Bits of a replay are log2 of the number of ways to keep as many of the candidates of each full expert,
less what ties leave open. Bits of an exhibited capacity are Σ ½·log2(2πC(1−C/candidates)) over the
refusing (expert, pool) cells of recorded pools, without the largest. Cells that repeat another's scores
count once.

**Inconclusive when** sequence ids or positions are missing, a (sequence, position) occurs twice, more
than half of the rows are tied in the recorded precision, a score is NaN or infinite, indices are out of
range, refusals contradict the capacity, randomness of the token's own was declared, choices are not
explained by the scores, or what happened rests on how the batch was cut into pools and `pool_id` was
not recorded.

**What it cannot see.** Drops by score per device, overflow that is re-routed, anything without a full
expert. These end inconclusive.

**Cost.** None in the trainer beyond the routing probe's samples; offline linear in tokens × experts.

**Sources.** The inversion argument is our own. Expert choice: Zhou et al. 2022. Capacity and drops:
Lepikhin et al. 2020 (GShard), Fedus et al. 2021 (Switch), Riquelme et al. 2021 (batch-prioritised).
)page";

constexpr RuleInfo kInfo = {"causality/moe-future-leak",
                            "an assignment depends on later tokens",
                            v1::LEVEL_ERROR,
                            RuleStatus::kBuilt,
                            "0.1.0",
                            kPage,
                            kRoutingOptions};

// What each policy is called as a cause, and the way out.
struct CauseText {
  const char* id;
  const char* title;
  const char* fix;
};

CauseText CauseOf(const std::string& policy) {
  if (policy == "score-capacity") {
    return {
        "drop-by-score", "a full expert drops its lowest scores, whoever comes later",
        "Drop by position instead of by score (Megatron-LM: --moe-token-drop-policy position), or "
        "route without "
        "capacity (Megatron-LM: no --moe-expert-capacity-factor; DeepSpeed: drop_tokens=False)."};
  }
  if (policy == "expert-choice") {
    return {"expert-choice", "experts choose their best tokens of the whole pool",
            "Use token choice in a decoder: dropless top-k with a stored balancing bias."};
  }
  return {"unknown", "a full expert refused a token and admitted a later one",
          "Queue tokens in time order (and second choices with their own token), or route without "
          "capacity."};
}

class MoeFutureLeak : public Rule {
 public:
  explicit MoeFutureLeak(const Options& options)
      : proof_bits_(options.Number("proof-bits")), hint_bits_(options.Number("hint-bits")) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    const bool routing = std::any_of(step.items.begin(), step.items.end(),
                                     [](const Item& item) { return item.evidence->has_routing(); });
    if (!routing) return;
    unsampled_.try_emplace({step.site.layer(), step.site.op()}, step.step);
    const auto analyses = AnalyseRouting(step);
    for (size_t i = 0; i < analyses.size(); ++i) {
      const Item& item = step.items[i];
      if (analyses[i] == nullptr) {
        const std::string& why = item.evidence->routing().no_sample_reason();
        if (why.empty()) continue;
        Emit(item, Inconclusive("no-sample: " + why), out);
      } else {
        Emit(item, JudgeCall(step, *analyses[i]), out);
      }
      unsampled_[{step.site.layer(), step.site.op()}] = kSampled;
    }
  }

  // A site whose rows were never captured was never judged: say so once.
  void JudgeRun(const RunSummary&, VerdictSink& out) override {
    for (const auto& [site, first_step] : unsampled_) {
      if (first_step == kSampled) continue;
      v1::Verdict verdict =
          Inconclusive("no-sample: no step of this site was captured with its rows");
      verdict.mutable_site()->set_layer(site.first);
      verdict.mutable_site()->set_op(site.second);
      verdict.mutable_site()->set_step_first(first_step);
      verdict.mutable_site()->set_step_last(first_step);
      out.Add(std::move(verdict));
    }
  }

 private:
  static constexpr int64_t kSampled = -1;

  static void Emit(const Item& item, v1::Verdict verdict, VerdictSink& out) {
    verdict.mutable_site()->add_ranks(item.source->rank());
    out.Add(std::move(verdict));
  }

  v1::Verdict JudgeCall(const SiteStep& step, const RoutingAnalysis& a) const {
    v1::Verdict verdict = a.blocked.empty() ? Decide(step, a) : Inconclusive(a.blocked);
    *verdict.mutable_details() = a.Details();
    *verdict.mutable_assumptions() = {a.assumptions.begin(), a.assumptions.end()};
    return verdict;
  }

  v1::Verdict Decide(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (c.judged_rows == 0) return Inconclusive("no-rows: every row is padding");
    if (2 * (c.tied + c.non_finite) > c.judged_rows) {
      return Inconclusive(absl::StrCat(c.non_finite > c.tied ? "non-finite" : "tied", ": ", c.tied,
                                       " rows tied and ", c.non_finite, " not finite of ",
                                       c.judged_rows, "; more than half cannot be reconstructed"));
    }
    if (c.kept_outside_choice) return DecideColumns(a);
    if (c.dropped == 0) return DecideDropless(step, a);
    return DecideCapacity(step, a);
  }

  v1::Verdict DecideDropless(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    const v1::RoutingConfig& config = c.routing->config();
    const bool declared = config.capacity_kind() == v1::RoutingConfig::CAPACITY_DECLARED;
    if (c.unexplained > 0) return Unexplained(c);
    if (c.unknown_refusals > 0) return UnknownRefusals(c);
    if (c.explained == 0)
      return Inconclusive("no-rows: no row's own choice can be compared with what was recorded");
    if (c.non_finite > 0) return Poisoned(c);
    if (const std::string complaint = BiasComplaint(step, c); !complaint.empty())
      return Inconclusive(complaint);
    if (declared && !c.drops_recorded) {
      return Inconclusive(
          "no-keep-mask: a capacity is set, but neither keep_mask nor routing_map was recorded");
    }
    if (declared) {
      return Inconclusive(absl::StrCat("no-expert-full: no choice was refused at capacity ",
                                       config.capacity(), "; who would be dropped did not show"));
    }
    return Pass("every token went where its own scores sent it");
  }

  v1::Verdict DecideColumns(const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (!a.columns()) {
      return Inconclusive(
          "kept-outside-choice: tokens hold experts that their own scores did not choose, and no "
          "policy known here explains it");
    }
    if (!c.ordered()) return NoOrder(c);
    if (!c.routing->config().randomness().empty()) return RandomChoice(c);
    if (a.column.exceeds_declared) {
      return Inconclusive(absl::StrCat("capacity-differs: every expert holds ", a.column.capacity,
                                       " tokens, the declared capacity is ",
                                       c.routing->config().capacity()));
    }
    if (a.column.positional) {
      return Inconclusive(
          "table: the same positions are taken in every sequence, or scores have few values; a "
          "table "
          "does that without looking at any token");
    }
    if (a.column.one_threshold) {
      return Inconclusive(
          "own-threshold: one threshold per expert, common to all pools, explains every "
          "assignment");
    }
    const double bits = a.column.bits;
    if (!(bits >= hint_bits_) || !a.column.witness.found()) {
      return Inconclusive(absl::StrFormat(
          "few-bits: expert choice explains every assignment, with %.1f bits against "
          "own thresholds; %.0f are needed",
          bits, hint_bits_));
    }
    const bool proved = bits >= proof_bits_ && c.pool_basis == PoolBasis::kRecorded;
    return Found(
        a, proved, bits, a.column.witness,
        absl::StrFormat(
            "In every pool each expert holds exactly %d tokens, its best by %s, while tokens hold "
            "different numbers of experts. The equal counts are worth %.1f bits against own "
            "thresholds.",
            a.column.capacity, a.column.variant, bits));
  }

  v1::Verdict DecideCapacity(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (!c.ordered()) return NoOrder(c);
    if (SpansRanks(step, c)) {
      return Inconclusive(
          "pool-spans-ranks: tokens of other ranks compete for this capacity and are not joined "
          "here");
    }
    if (!a.saturation.contradiction.empty()) return Inconclusive(a.saturation.contradiction);
    if (!c.routing->config().randomness().empty()) return RandomChoice(c);
    if (a.inversions.inversions == 0) return DecideQueue(step, a);
    if (a.capacity_bits == 0) {
      return Inconclusive(
          absl::StrCat("pool-unrecorded: ", a.inversions.inversions,
                       " inversions, but capacity is not declared and pools are not recorded "
                       "(pool_id): a cut into chunks could explain them"));
    }
    // A pair alone is explained by too much: own thresholds before a queue, running budgets,
    // unequal pieces. Until their replays are tried it accuses nobody without the leaking policy's
    // own replay.
    const bool replayed = a.score.exact && a.queue.exact_orders.empty();
    if (!replayed) {
      return Inconclusive(absl::StrFormat(
          "inversions-unexplained: %d inversions (%.1f bits that capacity caused them), "
          "and no policy known here gives these refusals",
          a.inversions.inversions, a.inversions.future_bits));
    }
    const double bits = std::min(a.score.bits, a.capacity_bits);
    const RefusalPair pair = a.inversions.future.found() ? a.inversions.future : a.inversions.any;
    if (!(bits >= hint_bits_)) {
      return Inconclusive(absl::StrFormat(
          "few-bits: %d inversions, with %.1f bits for drop by score; %.0f are needed",
          a.inversions.inversions, bits, hint_bits_));
    }
    // An own threshold is score-separable too: that full cells hold C must not be luck.
    const Saturation& s = a.saturation;
    const bool no_luck = s.holding_bits >= hint_bits_ || s.distinct_refusing >= 2;
    const bool proved = bits >= proof_bits_ && no_luck;
    return Found(
        a, proved, bits, pair,
        absl::StrFormat(
            "%d refused choices have a later admission at the same full expert in their own "
            "sequence. Drop by score (%s) replays every assignment (%.1f bits); first come first "
            "served does not.",
            a.inversions.inversions, a.score.variant, a.score.bits));
  }

  // Refusals without an inversion.
  v1::Verdict DecideQueue(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (c.unexplained > 0) return Unexplained(c);
    if (c.unknown_refusals > 0) return UnknownRefusals(c);
    if (c.non_finite > 0) return Poisoned(c);
    if (const std::string complaint = BiasComplaint(step, c); !complaint.empty())
      return Inconclusive(complaint);
    if (a.queue.exact_orders.empty()) {
      return Inconclusive(
          "order-unexplained: no inversion, but no queue in time order gives these refusals "
          "either");
    }
    if (a.score.exact && a.score.bits > 0) {
      return Inconclusive(
          absl::StrFormat("two-policies: first come first served and drop by score both give these "
                          "refusals (%d of them)",
                          c.dropped));
    }
    if (a.queue.rank_major_fits) {
      return Inconclusive(
          absl::StrFormat("two-policies: first come first served and a queue of all first choices "
                          "before all second ones "
                          "both give these refusals (%d of them); the second one leaks",
                          c.dropped));
    }
    if (!(a.queue.best.bits >= proof_bits_)) {
      return Inconclusive(absl::StrFormat(
          "few-refusals: first come first served fits, with %.1f bits; %.0f are needed",
          a.queue.best.bits, proof_bits_));
    }
    return Pass(
        absl::StrFormat("first come first served replays every assignment (%s order, %.1f bits)",
                        a.queue.best.variant, a.queue.best.bits));
  }

  v1::Verdict Found(const RoutingAnalysis& a, bool proved, double bits, const RefusalPair& pair,
                    const std::string& explanation) const {
    const CauseText cause = CauseOf(a.policy);
    v1::Verdict verdict;
    verdict.set_kind(v1::Verdict::KIND_FINDING);
    v1::Finding& finding = *verdict.mutable_finding();
    finding.set_level(proved ? v1::LEVEL_ERROR : v1::LEVEL_WARNING);
    finding.set_strength(proved ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
    finding.set_title(absl::StrCat("routing depends on later tokens: ", cause.title));
    finding.set_explanation(explanation);
    finding.mutable_cause()->set_id(cause.id);
    finding.mutable_cause()->set_confidence(a.policy == "unknown" ? 0 : a.explained_share);
    finding.mutable_measured()->set_name("inversions");
    finding.mutable_measured()->set_value(1000.0 * static_cast<double>(a.inversions.inversions) /
                                          static_cast<double>(a.c.judged_rows));
    finding.mutable_measured()->set_unit("per 1,000 tokens");
    finding.mutable_threshold()->set_value(0);
    finding.mutable_threshold()->set_source("a queue in time order shows none");
    finding.set_sample_size(static_cast<uint64_t>(a.c.judged_rows));
    *finding.mutable_witness() = Witness(a, pair);
    Put(*finding.mutable_witness(), "bits", bits);
    finding.set_fix(cause.fix);
    return verdict;
  }

  static bool SpansRanks(const SiteStep& step, const RoutingCase& c) {
    const auto pool = c.routing->config().pool();
    const bool shared =
        pool == v1::RoutingConfig::POOL_GROUP || pool == v1::RoutingConfig::POOL_WORLD;
    return shared && step.world_size != 1;
  }

  double proof_bits_;
  double hint_bits_;
  std::map<std::pair<std::string, std::string>, int64_t> unsampled_;  // first step, or kSampled
};

}  // namespace

CatalogueEntry moe_future_leak() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MoeFutureLeak>(options);
          }};
}

}  // namespace plumbline::rules
