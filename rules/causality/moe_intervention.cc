#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/intervention/intervention.h"
#include "analysis/routing/routing.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# causality/moe-intervention

When the router runs again with other tokens after a position, it changes the assignment of an earlier token.

**Why.** A recording shows which tokens were refused; an intervention shows why. With 8 experts of capacity 16, 64
tokens and k = 2, drop by score moved an earlier token in 93 of 100 such interventions (normal scores),
first come first served in none. The check needs no knowledge of the router: any callable can be tested.

**Bad.** `token 0 (sequence 0, position 0) lost expert 4 with the tokens from position 1 of sequence 0
replaced by copies of the strongest tokens before`.

**Good.** No assignment moves. Routers that are random under a fixed seed are not a fault.

**How to fix it.**
- Choose by the token's own scores: dropless top-k with a stored balancing bias.
- With capacity, queue tokens in time order, each token's choices together (DeepSpeed:
  `use_rts=False` and top-1; Tutel: `batch_prioritized_routing=False`), and give each sequence its own
  capacity.
- Expert choice, mixture of depths over the sequence, Sinkhorn and balanced assignment are for encoders.

**What it checks.** It runs a router on a batch twice, then with the tokens after a cut replaced, and
compares every earlier token's experts exactly. Cuts are at 1, the powers of two and their neighbours,
and before the last token; suffixes are random tokens, copies of the prefix's strongest tokens (they
compete for the same experts), or many tokens that choose one expert. Then whole other sequences are
replaced, earlier ones, later ones, and those of another rank. Shapes, seeds and padding stay; nothing is
truncated, since capacity follows length.

With a router in hand: `plumbline.check_router(route, logits, sequence_id=..., position=...)` in Python,
`plumbline::CheckRouter` in C++, `plumbline_check_router` in C. With a recording alone: `plumb audit
--set causality/moe-intervention.replay=on` runs the project's own router of the policy that the recording
shows, if it gives every recorded assignment.

**Strength.** With the router in hand `proved`: the flip was repeated, and the batch as given still routes
as before. Error where a later token of the same sequence moves an assignment; warning where only another
sequence or rank does. From a recording, what is run is our router, so the finding is as strong as the
evidence that it is the trainer's: `proved` needs 20 bits for the policy, capacity recorded as the
configuration's number and pools row by row; from 7 bits on `heuristic`, a warning.

A recording cannot be replayed if its refusals depend on data that were not recorded: random selection (the
draws), Sinkhorn and auctions (how far they were run), keys other than functions of the scores (they
cannot be computed for another suffix).

**Inconclusive when** the router does not repeat itself (fix its seeds; a router that keeps a state
between calls is one), every sequence is one token long, or, from a recording, when the policy is unknown,
explains only a share, rests on draws that were not recorded, no reference router gives every assignment,
or the call is larger than 4 Mi scores. By name: `nondeterministic` `one-token` `not-checked` `too-large` `policy-unknown` `partly-explained`
`random-choice` `not-replayable` `not-replayed` `no-order` `fates-unknown` `non-finite` `two-policies` `own-threshold` `scores-not-own`
`table` `few-bits` `no-expert-full` `capacity-differs` `capacity-none`, and the reasons of `causality/moe-future-leak`.

**What it cannot see.** Dependence that none of the tries provoked: shares are of the interventions that
were tried. What reaches the scores before the router (attention, normalisation) is
`causality/future-influence`.

**Cost.** None in the trainer. At most 1,000 calls of the router; from a recording 40 to 200 replays, hence off
by default.

**Sources.** Taxonomy and sweep are our own. Expert choice: Zhou et al. 2022. Capacity: Lepikhin et al.
2020, Riquelme et al. 2021.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "replay",
     .type = OptionInfo::Type::kFlag,
     .unit = "",
     .default_value = "off",
     .reason =
         "it replays every sampled call a few hundred times; moe-future-leak does not need this"},
};

constexpr RuleInfo kInfo = {
    "causality/moe-intervention",
    "the router, run again with another suffix, changes an earlier assignment",
    v1::LEVEL_ERROR,
    "0.1.0",
    kPage,
    kOptions};

constexpr int64_t kMostScores = int64_t{1} << 22;

// The strength of the evidence that the policy is the trainer's.
struct Evidence {
  double bits = 0;
  bool firm = false;
};

Evidence EvidenceOf(const RoutingAnalysis& a) {
  const bool recorded = a.doubts().empty();
  if (a.policy == "token-choice") return {HUGE_VAL, true};
  if (a.columns()) return {a.column.bits, recorded};
  if (a.policy == "fifo-capacity") {
    // The pools may have been routed in pieces that were not recorded. The bits must exclude such
    // pieces.
    return {a.first_come.best.bits, recorded};
  }
  if (a.leak() == nullptr || a.by_ties())
    return {std::min(a.certificate.bits, a.capacity_bits), false};
  const bool no_luck = a.leak()->luck_bits >= kLuckBits;
  return {std::min(a.leak()->bits, a.capacity_bits), recorded && no_luck};
}

// moe-future-leak reports the raw bits of such a replay, as a hint.
std::string OfRawBits(const RoutingAnalysis& a, double bits) {
  const RankedReplay* leak = a.columns() ? nullptr : a.leak();
  if (leak == nullptr || !(leak->raw_bits >= bits + 1)) return "";
  return absl::StrFormat(
      " (of %.1f; the others are in cells that another policy fills in the same way)",
      leak->raw_bits);
}

// Returns a text about another explanation that also gives every assignment, or "".
std::string Rival(const RoutingAnalysis& a) {
  if (a.columns() && (a.column.positional || a.column.by_position))
    return "table: a function of the position gives the same assignments";
  if (a.columns() && a.column.one_threshold)
    return "own-threshold: one threshold per expert gives the same assignments";
  if (a.columns() && a.column.exceeds_declared)
    return "capacity-differs: experts have a number of tokens that differs from the declared "
           "capacity";
  if (a.policy != "fifo-capacity" && a.first_come.best.fits)
    return "two-policies: first come first served gives the same assignments";
  if (a.policy == "fifo-capacity" && a.rank_major_possible) {
    return "two-policies: too few choice ranks are recorded to exclude a queue of all first "
           "choices before all second ones";
  }
  if (ExcludesCapacity(a.c.routing->config()) && !a.saturation.contradiction.empty())
    return a.saturation.contradiction;
  if (a.columns() && ExcludesCapacity(a.c.routing->config()))
    return "capacity-none: experts have equal counts, but the configuration has no capacity";
  if (a.scores_of_sequences)
    return "scores-not-own: all rows of a sequence have the same scores, bit for bit";
  const bool may_refuse = SetsCapacity(a.c.routing->config()) && !CapacityCannotRefuse(a.c);
  if (a.policy == "token-choice" && may_refuse && a.c.drops_recorded &&
      !a.saturation.contradiction.empty())
    return a.saturation.contradiction;
  if (a.policy == "token-choice" && may_refuse)
    return "no-expert-full: no choice was refused, so the drop order is not visible";
  return "";
}

class MoeIntervention : public Rule {
 public:
  explicit MoeIntervention(const Options& options) : replay_(options.Flag("replay")) {}

  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (!replay_) return;
    for (const auto& a : AnalyseRouting(step)) {
      if (a == nullptr) continue;
      v1::Verdict verdict = Checked(*a, Decide(step, *a));
      const google::protobuf::Struct details = a->Details();
      verdict.mutable_details()->MergeFrom(details);
      for (const std::string& assumption : a->assumptions) verdict.add_assumptions(assumption);
      for (uint32_t rank : a->ranks) verdict.mutable_site()->add_ranks(rank);
      out.Add(std::move(verdict));
    }
  }

  // Each step is judged independently.
  void Persist(Archive& /*archive*/) override {}

 private:
  static v1::Verdict Decide(const SiteStep& step, const RoutingAnalysis& a) {
    if (!a.blocked.empty()) return Inconclusive(a.blocked);
    if (int64_t{a.c.tokens} * a.c.experts > kMostScores) {
      return Inconclusive(absl::StrCat("too-large: ", a.c.tokens, " x ", a.c.experts,
                                       " scores; at most ", kMostScores, " are replayed"));
    }
    if (const std::string rival = Rival(a); !rival.empty()) return Inconclusive(rival);
    if (const std::string complaint = BiasComplaint(step, a.c); !complaint.empty())
      return Inconclusive(complaint);
    const ReplayedRouter router = ReplayNamedPolicy(a);
    if (!router.problem.empty()) return Inconclusive(router.problem);
    const auto check =
        CheckRouter(router.Call(), router.Inputs(a), {.max_calls = Calls(a.c), .max_sequences = 3});
    if (!check.ok())
      return Inconclusive(absl::StrCat("not-checked: ", std::string(check.status().message())));
    v1::Verdict verdict = Weigh(a, router, *check);
    Describe(router, *check, verdict.mutable_details());
    return verdict;
  }

  // Returns the number of replays. A large call is replayed fewer times: about ten seconds at most.
  static int Calls(const RoutingCase& c) {
    constexpr int64_t kScoresInAll = int64_t{1} << 26;
    return static_cast<int>(
        std::clamp<int64_t>(kScoresInAll / (int64_t{c.tokens} * c.experts), 40, 200));
  }

  static v1::Verdict Weigh(const RoutingAnalysis& a, const ReplayedRouter& router,
                           const RouterCheck& check) {
    using Row = RouterCheck::Row;
    if (check.row == Row::kNotTried) return Inconclusive("one-token: " + check.Explanation());
    if (check.row == Row::kNondeterministic)
      return Inconclusive("nondeterministic: " + check.Explanation());
    const Evidence evidence = EvidenceOf(a);
    const double needed = check.row == Row::kClean ? kProofBits : kHintBits;
    if (!(evidence.bits >= needed)) {
      return Inconclusive(absl::StrFormat(
          "few-bits: %s gives every assignment, with %.1f bits%s; the rule needs %.0f", router.how,
          evidence.bits, OfRawBits(a, evidence.bits), needed));
    }
    if (check.row == Row::kClean)
      return Pass(absl::StrFormat("%s: no assignment moved in %d runs", router.how, check.calls));
    return Found(a, router, check, evidence);
  }

  static v1::Verdict Found(const RoutingAnalysis& a, const ReplayedRouter& router,
                           const RouterCheck& check, const Evidence& evidence) {
    const bool future = check.row == RouterCheck::Row::kFutureLeak;
    const bool proved = evidence.firm && evidence.bits >= kProofBits;
    FindingBuilder found(future && proved ? v1::LEVEL_ERROR : v1::LEVEL_WARNING,
                         proved ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
    found
        .Title(future ? "run with another suffix, the router changes an earlier assignment"
                      : "another sequence in the batch changes the router's assignment")
        .Explain(absl::StrCat("The recording is ", router.how, ": it gives every assignment. ",
                              check.Explanation()));
    const RoutingCause& cause = CauseOf(a.cause);
    found.Cause(future ? cause.id : "shared-capacity", 1);
    const FlipShare& share = future ? check.future : check.earlier;
    found.Measured(future ? "future_share" : "earlier_share", share.value(), "of the interventions")
        .Threshold(0, future ? "later tokens may not decide the expert of a token"
                             : "only the token's own sequence may decide its expert")
        .Samples(static_cast<uint64_t>(check.calls));
    const FlipWitness& w = check.witness;
    found.Witness("text", w.text)
        .Witness("row", w.token)
        .Witness("sequence", static_cast<double>(w.sequence))
        .Witness("position", static_cast<double>(w.position))
        .Witness("changed_sequence", static_cast<double>(w.changed_sequence))
        .Witness("changed_from", static_cast<double>(w.cut))
        .Witness("lost_expert", w.lost)
        .Witness("gained_expert", w.gained)
        .Fix(future ? cause.fix
                    : "Route without capacity, or give each sequence its own capacity. Evaluate "
                      "and generate without drops.");
    return found.Take();
  }

  static void Describe(const ReplayedRouter& router, const RouterCheck& check,
                       google::protobuf::Struct* details) {
    Put(*details, "row", check.row_name());
    Put(*details, "replayed_as", router.how);
    Put(*details, "calls", static_cast<double>(check.calls));
    const std::pair<const char*, const FlipShare*> shares[] = {
        {"future_share", &check.future},
        {"earlier_share", &check.earlier},
        {"later_share", &check.later},
        {"other_rank_share", &check.other_rank}};
    for (const auto& [name, share] : shares) {
      if (share->tried > 0) Put(*details, name, share->value());
    }
  }

  bool replay_;
};

}  // namespace

CatalogueEntry moe_intervention() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MoeIntervention>(options);
          }};
}

}  // namespace plumbline::rules
