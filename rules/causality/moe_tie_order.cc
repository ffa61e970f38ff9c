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

A full expert chose among equal keys, in an order that nobody wrote down.

**Why.** The top-C of a 0/1 mask has only ties: with 4,096 candidates for 1,024 places it is the
library's selection that picks one of 2^3,317 sets. Another kernel, another batch size or another GPU picks
another, so restarts do not reproduce, and later tokens may push out earlier ones.

**What it checks.** Where a full expert refused a token and kept another of exactly the same key (the
recorded score, its softmax or share, or the recorded probability), the order among equals decided. It
compares the kept ones with the first of every queue in time order, and recordings of one call with each
other.

**Bad.** Positions by `topk(mask)`: `token 17 and token 903 have probability 1, expert 5 kept token 903`.

**Good.** Positions by a running sum over the queue; a stable sort with position as the second key.

**How to fix it.**
- Megatron-LM: `--moe-token-drop-policy probs` drops by score and leaks (see `causality/moe-future-leak`);
  `position` takes the top of a mask: check the recorded order, or route without capacity.
- DeepSpeed: `use_rts=False`, and `drop_tokens=False` where memory allows.
- Own code: `cumsum(mask)` in time order, or `sort(stable=True)`.

**Strength.** `proved`, a warning: two recordings of one call have bit-identical scores and another kept
set, and the difference lies among equal keys. `heuristic`, a warning: in one recording the kept of some
tie are not its first in any time-ordered queue.

**Inconclusive when** no expert was full, the pool is unrecorded, refusals contradict the capacity, no
key explains them, or keys are equal in a recording of 16 bits, which may have made them so.

**What it cannot see.** Ties that recording rounded away; ties of a key that was not recorded.

**Cost.** Shares the analysis of `causality/moe-future-leak`.
)page";

constexpr RuleInfo kInfo = {
    "causality/moe-tie-order",
    "a full expert refused among equal keys, in an order left to the library",
    v1::LEVEL_WARNING,
    "0.1.0",
    kPage,
    {}};

// The kept and refused candidates of one cell whose key equals that of the lowest admission.
struct Tie {
  std::vector<int32_t> members;  // indices into choices, by token
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
// pair: refused, and kept later.
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

  // Returns an earlier recording of the same call: bit-identical scores of the same tokens, same
  // choices.
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
      return Inconclusive("unreadable: more than half of the rows are tied or not finite");
    }
    if (a.zero_decides)
      return Pass("no choice was refused: a token takes what it scores above zero");
    if (c.kept_outside_choice || c.dropped == 0) return NoRefusal(a);
    if (!c.ordered()) {
      return Inconclusive("no-order: sequence ids or positions were not recorded");
    }
    if (c.pool_basis == PoolBasis::kUnrecorded && a.inferred_pools.empty()) {
      return Inconclusive(
          "pool-unrecorded: which tokens shared a capacity was not recorded (pool_id or pool)");
    }
    if (ExcludesCapacity(c.routing->config())) return Inconclusive(a.saturation.contradiction);
    if (a.first_come.best.fits) return Pass("the first of every queue were kept, ties included");
    if (!a.saturation.contradiction.empty()) return Inconclusive(a.saturation.contradiction);
    const RankedReplay* key = TiedKey(a);
    if (key == nullptr) {
      return Inconclusive("no-key: no recorded key explains who was refused, ties or not");
    }
    // No ties even within rounding, so there are no equal keys.
    const std::vector<Tie> ties = key->tie_bits > 0 ? TiesOf(a, *key) : std::vector<Tie>{};
    if (ties.empty()) return Pass("no full expert refused among equal keys");
    if (MayBeOfRecording(c, key->key)) {
      return Inconclusive(
          "ties-of-recording: keys are equal in the 16 bits that were recorded; the router may "
          "have "
          "told them apart. Record scores at the precision in which it ranks them");
    }
    RefusalPair pair;
    if (twin != nullptr && DiffersAmong(ties, a, *twin, &pair)) {
      return Found(
          a, *key, ties, pair, v1::STRENGTH_PROVED,
          "Two recordings of this call have the same scores, bit for bit, and another kept "
          "set; they differ among equal keys.");
    }
    if (InTimeOrder(c, ties, &pair)) return Pass("among equal keys the first in time were kept");
    return Found(
        a, *key, ties, pair, v1::STRENGTH_HEURISTIC,
        absl::StrFormat("In %d full cells tokens of exactly the same key (%s) were kept and "
                        "refused, and the kept are not the first of any queue in time order.",
                        ties.size(), KeyName(key->key)));
  }

  static bool MayBeOfRecording(const RoutingCase& c, KeyKind key) {
    const DType dtype = key == KeyKind::kProbs ? c.probs.dtype() : c.scores.dtype();
    return DTypeSize(dtype) < 4;
  }

  static v1::Verdict NoRefusal(const RoutingAnalysis& a) {
    if (a.c.kept_outside_choice) {
      return Inconclusive("kept-outside-choice: whom an expert refused cannot be told");
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

  static v1::Verdict Found(const RoutingAnalysis& a, const RankedReplay& key,
                           const std::vector<Tie>& ties, const RefusalPair& pair,
                           v1::Strength strength, const std::string& explanation) {
    FindingBuilder found(v1::LEVEL_WARNING, strength);
    found.Title("a full expert chose among equal keys, in an order left to the library")
        .Explain(explanation)
        .Cause("tie-order", 1)
        .Measured("cells decided among equal keys", static_cast<double>(ties.size()), "cells")
        .Threshold(0, "a queue in time order decides every tie")
        .Samples(static_cast<uint64_t>(a.c.judged_rows));
    *found.finding().mutable_witness() = Witness(a, pair);
    found.Witness("key", KeyName(key.key))
        .Fix(
            "Take places by a running sum in time order, or sort stably with the position as "
            "second "
            "key; or route without capacity.");
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
