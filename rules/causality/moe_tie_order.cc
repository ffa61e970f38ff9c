#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/policies.h"
#include "analysis/routing/routing.h"
#include "rules/bases/routing_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# causality/moe-tie-order

A full expert chose among equal scores, in an order that is not defined.

**Why.** The top-C of a 0/1 mask consists of ties: with 4,096 candidates for 1,024 places, the library picks
one of 2^3,317 sets. Another kernel, another batch size or another GPU picks another, so restarts do not
reproduce, and later tokens may push out earlier ones.

**Bad.** Positions by `topk(mask)`: `token 17 and token 903 have probability 1, expert 5 kept token 903`.

**Good.** Positions by a running sum over the queue; a stable sort with position as the second key.

**How to fix it.**
- Megatron-LM: `--moe-token-drop-policy probs` drops by score and leaks (see `causality/moe-future-leak`);
  `position` takes the top of a mask: check the recorded order, or route without capacity.
- DeepSpeed: `use_rts=False`, and `drop_tokens=False` where memory allows.
- Own code: `cumsum(mask)` in time order, or `sort(stable=True)`.

**What it checks.** Where a full expert refused a token and kept another of exactly the same key (the
recorded score, its softmax or share, or the recorded probability), the order among equals decided. It
compares the kept ones with the first of every queue in time order, and recordings of one call with each
other. If no recorded key explains the refusals, it replays `torch.topk` of a 0/1 mask on a CPU (20 bits).

**Strength.** `proved`, a warning: two recordings of one call have bit-identical scores but different
kept tokens, and they differ among equal scores. `heuristic`, a warning: in one recording the kept of some
tie are not its first in any time-ordered queue.

**Inconclusive when** no expert was full, the pool is unrecorded, refusals contradict the capacity, no
key explains them, or keys are equal in a recording of 16 bits, which may have made them so. By name: `no-expert-full` `pool-unrecorded` `kept-outside-choice` `no-key` `no-order` `ties-of-recording`
`unreadable`, and the reasons of `causality/moe-future-leak` for recordings that it cannot read either.

**What it cannot see.** Ties that recording rounded away; ties of a key that was not recorded.

**Cost.** Shares the analysis of `causality/moe-future-leak`.
)page";

constexpr RuleInfo kInfo = {
    "causality/moe-tie-order",
    "a full expert chose among equal scores, in an order that the library decides",
    v1::LEVEL_WARNING,
    "0.1.0",
    kPage,
    {}};

// The candidates of one cell, kept or refused, whose key equals that of the lowest admission.
struct Tie {
  std::vector<int32_t> members;  // indices into choices, in the order of tokens
};

std::vector<Tie> TiesOf(const RoutingAnalysis& a, const RankedReplay& replay) {
  const RoutingCase& c = a.c;
  if (replay.tied_cells.empty()) return {};
  std::vector<uint8_t> tied(a.saturation.cells.size());
  for (size_t cell : replay.tied_cells) tied[cell] = 1;
  const CellChoices cells = GroupByCell(c, tied);
  const std::vector<Key> keys = KeysOfChoices(c, tied, replay.key);
  std::vector<Tie> ties(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    double least = HUGE_VAL;
    for (int32_t n : cells.ChoicesOf(i)) {
      const auto choice = static_cast<size_t>(n);
      if (c.choices[choice].kept) least = std::min(least, keys[choice].value);
    }
    for (int32_t n : cells.ChoicesOf(i)) {
      if (keys[static_cast<size_t>(n)].value == least) ties[i].members.push_back(n);
    }
  }
  return ties;
}

// Returns true if the kept candidates of this tie are its first by `place`. Otherwise sets the
// pair: a refused choice, and a kept choice that comes later.
bool FirstKept(const RoutingCase& c, const Tie& tie, const std::vector<int32_t>& place,
               RefusalPair* pair) {
  const Choice* refused = nullptr;
  const Choice* kept = nullptr;
  const auto at = [&](const Choice* choice) { return place[static_cast<size_t>(choice->token)]; };
  for (int32_t i : tie.members) {
    const Choice* choice = &c.choices[static_cast<size_t>(i)];
    const Choice*& end = choice->kept ? kept : refused;
    const bool further =
        end == nullptr || (choice->kept ? at(choice) > at(end) : at(choice) < at(end));
    if (further) end = choice;
  }
  if (at(refused) > at(kept)) return true;
  *pair = {refused->token, kept->token, kept->expert, kept->rank};
  return false;
}

// Returns true if some queue in time order keeps the first of every tie.
bool InTimeOrder(const RoutingCase& c, const std::vector<Tie>& ties, RefusalPair* pair) {
  std::vector<int32_t> place(static_cast<size_t>(c.tokens));
  for (const TimeQueue& queue : TimeQueues(c)) {
    for (size_t i = 0; i < queue.order.size(); ++i) {
      place[static_cast<size_t>(queue.order[i])] = static_cast<int32_t>(i);
    }
    if (std::all_of(ties.begin(), ties.end(),
                    [&](const Tie& tie) { return FirstKept(c, tie, place, pair); })) {
      return true;
    }
  }
  return false;
}

// Returns the key that explains the refusals except for ties, or null.
const RankedReplay* TiedKey(const RoutingAnalysis& a) {
  for (const RankedReplay& replay : a.ranked) {
    const bool own = replay.priority == RankedReplay::Priority::kOwnScore && !replay.rank_first;
    if (replay.exact && own) return &replay;
  }
  return nullptr;
}

class MoeTieOrder : public RoutingRule {
 public:
  explicit MoeTieOrder(const Options&) {}

 private:
  v1::Verdict JudgeCall(const SiteStep& /*step*/, const Analyses& analyses,
                        size_t i) const override {
    const RoutingAnalysis& a = *analyses[i];
    return a.blocked.empty() ? Decide(a, Twin(analyses, i)) : Inconclusive(a.blocked);
  }

  // Returns an earlier recording of the same call: its scores of the same tokens have the same
  // bits, and its choices are the same.
  static const RoutingAnalysis* Twin(const Analyses& analyses, size_t index) {
    const RoutingAnalysis& mine = *analyses[index];
    if (!mine.blocked.empty()) return nullptr;
    const v1::RoutingSample& sample = mine.c.routing->sample();
    for (size_t i = 0; i < index; ++i) {
      if (analyses[i] == nullptr || !analyses[i]->blocked.empty()) continue;
      const v1::RoutingSample& other = analyses[i]->c.routing->sample();
      if (other.scores().data() == sample.scores().data() &&
          analyses[i]->c.sequence == mine.c.sequence &&
          other.position().data() == sample.position().data() &&
          analyses[i]->c.choices.size() == mine.c.choices.size()) {
        return analyses[i].get();
      }
    }
    return nullptr;
  }

  static v1::Verdict Decide(const RoutingAnalysis& a, const RoutingAnalysis* twin) {
    const RoutingCase& c = a.c;
    if (2 * (c.tied + c.non_finite) > c.judged_rows) {
      return Inconclusive("unreadable: more than half of the rows are tied, NaN or infinite");
    }
    if (a.zero_decides)
      return Pass(
          "no choice was refused: a token is assigned to all experts that it scores above zero");
    if (c.kept_outside_choice || c.dropped == 0) return NoRefusal(a);
    if (!c.ordered()) {
      return Inconclusive("no-order: sequence ids or positions were not recorded");
    }
    if (c.pool_basis == PoolBasis::kUnrecorded && a.inferred_pools.empty()) {
      return Inconclusive(
          "pool-unrecorded: which tokens shared a capacity was not recorded (pool_id or pool)");
    }
    if (ExcludesCapacity(c.routing->config())) return Inconclusive(a.saturation.contradiction);
    if (a.first_come.best.fits) return Pass("each queue kept its first tokens, also among ties");
    if (!a.saturation.contradiction.empty()) return Inconclusive(a.saturation.contradiction);
    const RankedReplay* key = TiedKey(a);
    if (key == nullptr && a.library_ties.bits >= kProofBits && a.inversions.any.found()) {
      return Found(a, "a 0/1 mask", a.library_ties.cells, a.inversions.any, v1::STRENGTH_HEURISTIC,
                   TopOfMask(a));
    }
    if (key == nullptr) {
      return Inconclusive("no-key: no recorded score explains the refusals, with or without ties");
    }
    // If there are no ties even within rounding, there are no equal keys.
    const std::vector<Tie> ties = key->tie_bits > 0 ? TiesOf(a, *key) : std::vector<Tie>{};
    if (ties.empty()) return Pass("no full expert chose among equal scores");
    if (MayBeOfRecording(c, key->key)) {
      return Inconclusive(
          "ties-of-recording: scores are equal in the 16 bits that were recorded, but may differ "
          "in the router. Record scores at the precision in which the router ranks them");
    }
    RefusalPair pair;
    if (twin != nullptr && DiffersAmong(ties, a, *twin, &pair)) {
      return Found(a, KeyName(key->key), static_cast<int64_t>(ties.size()), pair,
                   v1::STRENGTH_PROVED,
                   "Two recordings of this call have bit-identical scores but different kept "
                   "tokens; they differ among equal scores.");
    }
    if (InTimeOrder(c, ties, &pair)) return Pass("among equal scores the first in time were kept");
    return Found(
        a, KeyName(key->key), static_cast<int64_t>(ties.size()), pair, v1::STRENGTH_HEURISTIC,
        absl::StrFormat("In %d full experts, tokens with exactly the same score (%s) were kept and "
                        "refused, and the kept ones are not the first of any queue in time order.",
                        ties.size(), KeyName(key->key)));
  }

  static bool MayBeOfRecording(const RoutingCase& c, KeyKind key) {
    const DType dtype = key == KeyKind::kProbs ? c.probs.dtype() : c.scores.dtype();
    return DTypeSize(dtype) < 4;
  }

  static v1::Verdict NoRefusal(const RoutingAnalysis& a) {
    if (a.c.kept_outside_choice) {
      return Inconclusive(
          "kept-outside-choice: the refused tokens of an expert cannot be determined");
    }
    if (a.nothing_kept.any()) return NothingKeptVerdict(a.nothing_kept);
    if (!a.saturation.contradiction.empty() && a.c.drops_recorded)
      return Inconclusive(a.saturation.contradiction);
    if (SetsCapacity(a.c.routing->config()) && !CapacityCannotRefuse(a.c)) {
      return Inconclusive("no-expert-full: no choice was refused");
    }
    return Pass("no choice was refused");
  }

  // Returns true if some member of a tie was kept in one recording and refused in the other.
  static bool DiffersAmong(const std::vector<Tie>& ties, const RoutingAnalysis& a,
                           const RoutingAnalysis& twin, RefusalPair* pair) {
    for (const Tie& tie : ties) {
      const Choice* lost = nullptr;
      const Choice* gained = nullptr;
      for (int32_t i : tie.members) {
        const Choice& mine = a.c.choices[static_cast<size_t>(i)];
        const Choice& other = twin.c.choices[static_cast<size_t>(i)];
        if (mine.token != other.token || mine.expert != other.expert) return false;
        if (mine.kept != other.kept) (mine.kept ? gained : lost) = &mine;
      }
      if (lost == nullptr || gained == nullptr) continue;
      *pair = {lost->token, gained->token, gained->expert, gained->rank};
      return true;
    }
    return false;
  }

  static v1::Verdict Found(const RoutingAnalysis& a, const char* key, int64_t cells,
                           const RefusalPair& pair, v1::Strength strength,
                           const std::string& explanation) {
    FindingBuilder found(v1::LEVEL_WARNING, strength);
    found.Title("a full expert chose among equal scores, in a library's order")
        .Explain(explanation)
        .Cause("tie-order", 1)
        .Measured("full experts that chose among equal scores", static_cast<double>(cells), "cells")
        .Threshold(0, "a queue in time order decides every tie")
        .Samples(static_cast<uint64_t>(a.c.judged_rows));
    *found.finding().mutable_witness() = Witness(a, pair);
    found.Witness("key", key)
        .Fix(
            "Assign places by a running sum in time order, or use a stable sort with the position "
            "as second key. Or route without capacity.");
    return found.Take();
  }
};

}  // namespace

CatalogueEntry moe_tie_order() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MoeTieOrder>(options);
          }};
}

}  // namespace plumbline::rules
