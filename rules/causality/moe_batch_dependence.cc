#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/routing.h"
#include "rules/bases/routing_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# causality/moe-batch-dependence

A token's expert depends on the other sequences that happened to share its batch.

**Why.** The same text gives another result in another batch. "First come first served" does not depend on
later tokens. But with 8 sequences in a pool and capacity factor 1.0, the last sequences of the queue lose
choices: with 4,096 tokens, 8 experts and k = 1, chance alone drops about 8·0.4·√(4096·⅛·⅞) = 68 choices,
nearly all of them from these sequences. So evaluations cannot be repeated, a rollout and its training pass
give different results, and packed documents influence each other.

**Bad.** `token 4093 (sequence 7, position 509), score 0.52, lost expert 2 to token 16 (sequence 0, ...)`.

**Good.** No capacity; or one pool a sequence.

**How to fix it.**
- Route without capacity (Megatron-LM: no `--moe-expert-capacity-factor`; DeepSpeed: `drop_tokens=False`).
- Or give each sequence its own capacity, and accept the drops.
- Evaluate and generate dropless in any case.

**What it checks.** A full expert refused a token while it kept one of another sequence in the same pool.
Packed documents count as separate sequences.

**Strength.** As `causality/moe-future-leak`: `proved` where capacity is the configuration's number,
`pool_id` is recorded and a policy (first come first served among them) replays every assignment with 20
bits; `heuristic` with less, from 7 bits on: pairs that no policy explains, an exhibited or inferred capacity,
pools by metadata. The fix lists what to record. Level warning in every case.

**Inconclusive when** the pool is unrecorded, only one sequence was recorded, capacity is neither
declared nor exhibited (`not-shown`), no expert was full, ids are redacted and the pool spans ranks (`order-redacted`), or the
recording cannot be read. By name: `pool-unrecorded` `one-sequence` `no-expert-full` `not-shown` `few-bits` `no-rows` `tied` `non-finite`
`kept-outside-choice` `capacity-differs` `capacity-none` `table`, and the reasons of `causality/moe-future-leak` for recordings that it cannot
read either.

**What it cannot see.** Dependence through anything but capacity: see `causality/batch-influence`.

**Cost.** Shares the analysis of `causality/moe-future-leak`.
)page";

constexpr RuleInfo kInfo = {"causality/moe-batch-dependence",
                            "an assignment depends on other sequences",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kRoutingOptions};

class MoeBatchDependence : public RoutingRule {
 public:
  explicit MoeBatchDependence(const Options& options)
      : proof_bits_(options.Number("proof-bits")), hint_bits_(options.Number("hint-bits")) {}

 private:
  v1::Verdict JudgeCall(const SiteStep& step, const Analyses& analyses, size_t i) const override {
    const RoutingAnalysis& a = *analyses[i];
    v1::Verdict verdict = a.blocked.empty() ? Checked(a, Decide(step, a)) : Inconclusive(a.blocked);
    *verdict.mutable_assumptions() = {a.assumptions.begin(), a.assumptions.end()};
    return verdict;
  }

  v1::Verdict Decide(const SiteStep& step, const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    if (a.zero_decides) return DecideDropless(step, a);
    if (2 * (c.tied + c.non_finite) > c.judged_rows) {
      return Inconclusive(
          c.non_finite > c.tied
              ? "non-finite: more than half of the rows have a NaN or infinite score"
              : "tied: more than half of the rows have tied scores");
    }
    if (c.kept_outside_choice && !a.columns()) {
      return Inconclusive(
          "kept-outside-choice: tokens are assigned to experts that their own scores did not "
          "choose");
    }
    if (c.dropped == 0 && !a.columns()) return DecideDropless(step, a);
    if (a.columns() && ExcludesCapacity(c.routing->config())) {
      return Inconclusive(
          "capacity-none: experts have equal counts, but the configuration has no capacity");
    }
    if (!c.ordered()) return NoOrder(c);
    if (!a.saturation.contradiction.empty() && !a.columns())
      return Inconclusive(a.saturation.contradiction);
    if (a.columns() ? OwnDraws(c.routing->config()) : UnrecordedDraws(c)) return RandomChoice(c);
    if (c.pool_basis == PoolBasis::kUnrecorded) {
      return Inconclusive(
          "pool-unrecorded: which tokens shared a capacity was not recorded (pool_id or pool)");
    }
    return DecidePools(a);
  }

  static v1::Verdict DecideDropless(const SiteStep& step, const RoutingAnalysis& a) {
    const RoutingCase& c = a.c;
    if (a.normalised_over_tokens) return NormalisedOverTokens();
    if (a.scores_of_sequences) return ScoresNotOwn();
    if (a.zero_decides) {
      const std::string complaint = BiasComplaint(step, c);
      return complaint.empty()
                 ? Pass("every token was assigned to the experts that it scores above zero")
                 : Inconclusive(complaint);
    }
    if (c.unexplained > 0) return Unexplained(c);
    if (c.unknown_refusals > 0) return UnknownRefusals(c);
    if (c.non_finite > 0) return Poisoned(c);
    if (c.explained == 0)
      return Inconclusive(
          "no-rows: for no row the choice by its own scores can be compared with the recorded one");
    if (const std::string complaint = BiasComplaint(step, c); !complaint.empty())
      return Inconclusive(complaint);
    if (a.nothing_kept.any()) return NothingKeptVerdict(a.nothing_kept);
    if (!a.saturation.contradiction.empty() && c.drops_recorded)
      return Inconclusive(a.saturation.contradiction);
    if (SetsCapacity(c.routing->config()) && !CapacityCannotRefuse(c)) {
      return Inconclusive(
          "no-expert-full: no choice was refused, so the drop order is not visible");
    }
    return Pass("every token was assigned by its own scores");
  }

  v1::Verdict DecidePools(const RoutingAnalysis& a) const {
    const RoutingCase& c = a.c;
    const RefusalPair pair = a.columns() ? a.column.batch : a.inversions.batch;
    const bool one_sequence_each = PoolsHoldOneSequence(c);
    if (one_sequence_each && c.pools > 1)
      return Pass("each pool is one sequence, so other sequences cannot compete");
    if (one_sequence_each) {
      // There is one pool with one sequence: either the configuration states this, or only one
      // sequence was recorded.
      return c.routing->config().pool() == v1::RoutingConfig::POOL_SEQUENCE
                 ? Pass("the pool is one sequence, so other sequences cannot compete")
                 : Inconclusive("one-sequence: only one sequence was recorded in the pool");
    }
    if (a.columns() && (a.column.positional || a.column.learned_table || a.column.one_threshold)) {
      return Inconclusive(
          "table: a fixed table, or one threshold per expert, explains every assignment");
    }
    if (a.columns() && a.column.exceeds_declared) {
      return Inconclusive(
          "capacity-differs: no expert has the declared capacity as its number of tokens");
    }
    if (!pair.found())
      return Inconclusive(
          "not-shown: no refused token competes with a token of another sequence at its expert");
    const double bits = BitsOf(a);
    if (!(bits >= hint_bits_)) {
      return Inconclusive(
          absl::StrFormat("few-bits: the evidence that capacity refused these tokens is %.1f bits; "
                          "the rule needs %.0f",
                          bits, hint_bits_));
    }
    return Found(a, pair, bits, ReplayBits(a) >= proof_bits_ && a.doubts().empty());
  }

  // Returns the bits of evidence that the capacity is the cause: from the choices of experts below
  // capacity, or from a policy that replays all assignments.
  double BitsOf(const RoutingAnalysis& a) const {
    const double pairs = a.drawn(hint_bits_) ? a.inversions.batch_bits : 0;
    const double bits = a.columns() ? a.column.bits : std::max(pairs, ReplayBits(a));
    const bool declared = a.columns() || a.saturation.basis == Saturation::Basis::kDeclared;
    return std::min(bits, declared ? HUGE_VAL : a.saturation.bits);
  }

  // Returns the bits of evidence, for a proof, of a policy that gives every assignment.
  static double ReplayBits(const RoutingAnalysis& a) {
    if (a.columns()) return a.column.bits;
    double bits = a.first_come.exact_orders.empty() ? 0 : a.first_come.best.bits;
    const bool lucky = a.leak() != nullptr && a.leak()->luck_bits < kLuckBits;
    if (a.leak() != nullptr && !lucky) bits = std::max(bits, a.leak()->bits);
    return bits;
  }

  static bool PoolsHoldOneSequence(const RoutingCase& c) {
    std::map<int32_t, int64_t> sequence_of;
    for (int32_t t = 0; t < c.tokens; ++t) {
      if (!c.judged(t)) continue;
      const auto row = static_cast<size_t>(t);
      if (sequence_of.try_emplace(c.pool[row], c.sequence[row]).first->second != c.sequence[row])
        return false;
    }
    return true;
  }

  static v1::Verdict Found(const RoutingAnalysis& a, const RefusalPair& pair, double bits,
                           bool proved) {
    FindingBuilder found(v1::LEVEL_WARNING, proved ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
    found.Title("routing depends on the other sequences of the batch");
    const int64_t count = a.inversions.cross_sequence;
    found
        .Explain(
            a.columns()
                ? absl::StrFormat("Experts choose among the tokens of several sequences at once "
                                  "(evidence: %.1f bits).",
                                  bits)
                : absl::StrFormat("A full expert refused %d choices and kept a token of another "
                                  "sequence. The evidence that capacity is the cause is %.1f bits.",
                                  count, bits))
        .Cause(a.columns() ? "expert-choice" : "shared-capacity", 1)
        .Measured("refusals in competition with another sequence",
                  1000.0 * static_cast<double>(count) / static_cast<double>(a.c.judged_rows),
                  "per 1,000 tokens")
        .Threshold(0, "only the token's own sequence may decide its expert")
        .Samples(static_cast<uint64_t>(a.c.judged_rows));
    *found.finding().mutable_witness() = Witness(a, pair);
    found.Witness("bits", bits);
    const std::string fix =
        "Route without capacity, or give each sequence its own capacity. Evaluate and generate "
        "without drops.";
    found.Fix(proved ? fix : absl::StrCat(fix, " ", a.HowToSettle()));
    return found.Take();
  }

  double proof_bits_;
  double hint_bits_;
};

}  // namespace

CatalogueEntry moe_batch_dependence() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MoeBatchDependence>(options);
          }};
}

}  // namespace plumbline::rules
