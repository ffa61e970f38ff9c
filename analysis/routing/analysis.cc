#include "analysis/routing/analysis.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/kept_by_score.h"
#include "analysis/routing/policies/policies.h"
#include "base/parallel.h"

namespace plumbline::analysis {
namespace {

// ---- naming ----------------------------------------------------------------------------------

void Name(RoutingAnalysis& a, const char* policy, const char* cause, double share) {
  a.policy = policy;
  a.cause = cause;
  a.explained_share = share;
}

void NameByReplay(RoutingAnalysis& a, const RankedReplay& leak) {
  using Priority = RankedReplay::Priority;
  if (!leak.by_score() && !leak.rank_first) {
    Name(a, "fifo-capacity", "queue-out-of-order", leak.share);
  } else if (!leak.by_score()) {
    Name(a, "rank-major-capacity", "rank-major-queue", leak.share);
  } else if (a.c.experts == 1) {
    Name(a, "sequence-top-k", "sequence-top-k", leak.share);
  } else if (leak.priority == Priority::kLowestScore) {
    Name(a, "score-capacity", "lowest-score-first", leak.share);
  } else if (leak.priority == Priority::kOwnScore && !leak.rank_first) {
    Name(a, "score-capacity", "drop-by-score", leak.share);
  } else {
    Name(a, "score-capacity", "batch-prioritised", leak.share);
  }
}

void NameByCapacity(RoutingAnalysis& a, const std::vector<TimeQueue>& queues) {
  const bool clean = a.first_come.best.fits;
  const RankedReplay* leak = a.leak();
  // Either no single capacity refuses, or two policies are possible, so a name would be a guess.
  if (clean && !a.rival() && !a.rank_major_possible)
    return Name(a, "fifo-capacity", "first-come", 1);
  const bool one_capacity = !clean && a.saturation.contradiction.empty();
  a.queue_share = a.first_come.exact_orders.empty() ? BestQueueShare(a.c, a.saturation, queues) : 1;
  if (one_capacity && leak != nullptr) return NameByReplay(a, *leak);
  a.explained_share = a.queue_share;
  for (const RankedReplay& replay : a.ranked)
    a.explained_share = std::max(a.explained_share, replay.share);
  if (!one_capacity || !a.pairs_speak(kHintBits) || a.patterns.any()) return;
  if (a.by_ties()) return Name(a, "tie-order-capacity", "tie-order", a.explained_share);
  // A draw keeps no better scores. Some choices may queue and only the others compete.
  constexpr double kByScore = 5;
  KeptByScoreDeviations(a.c, a.saturation) > kByScore
      ? Name(a, "score-capacity", "drop-by-score", a.explained_share)
      : Name(a, "random-capacity", "random-token-selection", a.explained_share);
}

// Sets the flatten order to that of the queue without an inversion. If several fit, uses the order
// of the metadata.
void InferFlatten(RoutingAnalysis& a, const std::vector<TimeQueue>& queues) {
  std::vector<std::string> fits;
  for (const std::string& order : a.first_come.exact_orders) {
    if (order != "rows") fits.push_back(order);
  }
  const bool one_order = std::none_of(queues.begin(), queues.end(), [](const TimeQueue& queue) {
    return queue.name == "seq-major";
  });
  if (one_order && !fits.empty()) fits.push_back("seq-major");
  const auto recorded = a.c.routing->config().flatten();
  const std::string stated = recorded == v1::RoutingConfig::FLATTEN_SEQ_MAJOR     ? "seq-major"
                             : recorded == v1::RoutingConfig::FLATTEN_BATCH_MAJOR ? "batch-major"
                                                                                  : "";
  if (std::find(fits.begin(), fits.end(), stated) != fits.end()) {
    a.flatten_order = stated;
  } else if (fits.size() == 1) {
    a.flatten_order = fits[0];
    a.flatten_contradicts = !stated.empty();
  }
}

// ---- assumptions -----------------------------------------------------------------------------

void ListAssumptions(RoutingAnalysis& a) {
  const v1::RoutingConfig& config = a.c.routing->config();
  if (!a.c.hashed_sequence.empty())
    a.assumptions.push_back("ids are redacted: sequences are numbered within the call");
  if (config.capacity_kind() == v1::RoutingConfig::CAPACITY_ABSENT && !a.columns() &&
      (a.c.dropped == 0 || a.zero_decides)) {
    a.assumptions.push_back(
        a.zero_decides ? "no capacity is set: none was recorded"
        : a.c.drops_recorded
            ? "no capacity is set: none was recorded and no choice was dropped"
            : "no capacity is set: neither a capacity nor dropped choices were recorded");
  }
  if (a.c.bias_matters && config.bias_captured() == v1::RoutingConfig::BIAS_CAPTURED_ABSENT) {
    a.assumptions.push_back("the expert bias was recorded before the scores of this batch");
  }
  if (a.cause == "first-come" && a.saturation.basis == Saturation::Basis::kExhibited) {
    a.assumptions.push_back("the capacity (not recorded) does not depend on the tokens");
  }
  if (a.cause == "first-come" && a.first_come.exact_orders.empty()) {
    a.assumptions.push_back("capacity applies as the refusals show: " + a.first_come.best.how);
  } else if (!a.inferred_pools.empty()) {
    a.assumptions.push_back("tokens compete for capacity as the refusals show: " +
                            a.inferred_pools);
  } else if (a.c.pool_basis == PoolBasis::kMetadata) {
    a.assumptions.push_back("tokens compete for capacity as declared by the pool in the metadata");
  }
  if (!a.c.group_score_used.empty() &&
      config.group_score() == v1::RoutingConfig::GROUP_SCORE_ABSENT) {
    a.assumptions.push_back("group score " + a.c.group_score_used +
                            " (not recorded; it explains more rows)");
  }
}

// An expert that keeps no token is not full, because with a capacity it keeps the tokens that fit.
void SetAside(RoutingAnalysis& a, uint32_t world_size) {
  // Tokens of other ranks may have filled it.
  const bool others = world_size > 1 && a.c.pool_basis == PoolBasis::kUnrecorded;
  if ((others && a.joined == nullptr) || a.c.holders_unknown) return;
  a.nothing_kept = SetNothingKeptAside(a.c);
  if (!a.nothing_kept.any()) return;
  a.assumptions.push_back(
      absl::StrCat("experts without kept choices are null experts, by a stored rule: ",
                   absl::StrJoin(a.nothing_kept.experts, ", ")));
}

// ---- refusals --------------------------------------------------------------------------------

// If no single capacity of the pools explains the refusals, the pools may have been routed in
// pieces.
void TryChunks(RoutingAnalysis& a, const std::vector<TimeQueue>& queues) {
  constexpr size_t kMost = 8;
  int64_t tried = 0;
  RoutingAnalysis best;
  for (const Chunking& chunking : ConsistentChunkings(a.c, queues, kMost, &tried)) {
    RoutingCase c = a.c;
    c.pool = chunking.pool;
    c.pools = chunking.pools;
    c.pool_rows.assign(static_cast<size_t>(c.pools), 0);
    for (int32_t pool : c.pool) ++c.pool_rows[static_cast<size_t>(pool)];
    RoutingAnalysis other;
    other.saturation = FindSaturation(c);
    if (!other.saturation.contradiction.empty()) continue;
    other.ranked = ReplayRanked(c, other.saturation, TimeQueues(c));
    if (other.leak() == nullptr) continue;
    const double tries = std::log2(static_cast<double>(std::max<int64_t>(tried, 1)));
    other.ranked.front().bits -= tries;
    other.ranked.front().raw_bits -= tries;
    if (other.leak() == nullptr) continue;
    if (best.leak() != nullptr && best.leak()->raw_bits >= other.leak()->raw_bits) continue;
    best = std::move(other);
    best.c = std::move(c);
    best.inferred_pools = chunking.how;
  }
  if (best.leak() == nullptr) return;
  a.c = std::move(best.c);
  a.saturation = std::move(best.saturation);
  a.ranked = std::move(best.ranked);
  a.inferred_pools = best.inferred_pools;
}

// Runs the tasks, each of which fills its own part of the analysis. In a large call, uses several
// threads.
void SideBySide(const RoutingCase& c, const std::vector<std::function<void()>>& tasks) {
  ParallelTasks(tasks.size(), ThreadsFor(c.routing->sample().scores().data().size()),
                [&](size_t i) { tasks[i](); });
}

void AnalyseRefusals(RoutingAnalysis& a) {
  const std::vector<TimeQueue> queues = TimeQueues(a.c);
  const auto first_come = [&] { a.first_come = ReplayFirstCome(a.c, queues); };
  const auto inversions = [&] { a.inversions = FindInversions(a.c, a.saturation); };
  if (a.saturation.contradiction.empty()) {
    SideBySide(
        a.c, {[&] { a.ranked = ReplayRanked(a.c, a.saturation, queues); }, first_come, inversions});
  } else {
    first_come();
    if (a.c.pool_basis != PoolBasis::kRecorded) TryChunks(a, queues);
    inversions();
  }
  int64_t ranked = 0;
  for (const Choice& choice : a.c.choices) ranked += choice.rank >= 0;
  a.rank_major_possible = a.c.top_k > 1 && 2 * ranked <= static_cast<int64_t>(a.c.choices.size());
  const bool explained = a.first_come.best.fits || (a.leak() != nullptr && !a.by_ties());
  if (!explained && a.saturation.contradiction.empty())
    a.own_refusal_bits = OwnRefusalBits(a.c, a.saturation, queues);
  if (!explained && a.inversions.inversions > 0 && a.saturation.contradiction.empty()) {
    SideBySide(a.c, {[&] { a.certificate = CertifyPairs(a.c, a.saturation); },
                     [&] { a.patterns = FindCleanPatterns(a.c, a.saturation, queues); }});
  }
  if (!explained && a.saturation.contradiction.empty())
    a.library_ties = ReplayTopOfMask(a.c, a.saturation, queues);
  NameByCapacity(a, queues);
  if (a.library_ties.bits >= kProofBits) Name(a, "tie-order-capacity", "tie-order", 1);
  InferFlatten(a, queues);
}

// Keeps the tables of stored numbers that give the same choices as some leaking policy.
void KeepStored(RoutingAnalysis& a) {
  if (a.columns()) {
    a.stored = std::move(a.column.stored);
    return;
  }
  for (RankedReplay& replay : a.ranked) {
    if (replay.exact && replay.raw_bits >= kHintBits) a.stored.push_back(std::move(replay.stored));
  }
}

// The weights are the same in all calls of a step, so another call may exclude an explanation that
// one call leaves open.
void ExcludeStored(const std::vector<std::shared_ptr<RoutingAnalysis>>& calls) {
  std::map<std::string, StoredRules> rules;  // by policy
  for (const auto& a : calls) {
    if (a != nullptr) rules[a->policy].Take(a->stored);
  }
  for (const auto& a : calls) {
    if (a != nullptr) a->stored_excluded = rules[a->policy].excluded();
  }
}

// Collects evidence for a router that did not look ahead, in addition to a leaking policy that
// gives every choice.
void RequestInnocence(RoutingAnalysis& a) {
  const RankedReplay* leak = a.leak();
  const bool firm = DeclaresCapacity(a.c.routing->config()) && a.firm_pools();
  if (a.cause == "first-come" && firm) {
    for (const TimeQueue& queue : TimeQueues(a.c)) {
      const auto& exact = a.first_come.exact_orders;
      if (std::find(exact.begin(), exact.end(), queue.name) != exact.end())
        a.stored.push_back(ClosingPlaces(a.c, queue));
    }
  }
  if (!a.columns() && leak == nullptr) return;
  const double bits = a.columns() ? a.column.bits : leak->raw_bits;
  const bool by_score = a.columns() || leak->by_score();
  if (!DeclaresCapacity(a.c.routing->config())) {
    a.structured = by_score && bits >= kHintBits && CountsFollowStructure(a.c);
  } else if (firm && a.cause != "first-come") {
    KeepStored(a);
  }
}

void Analyse(RoutingAnalysis& a, const RoutingCall& call, uint32_t world_size) {
  const v1::Routing& routing = *call.routing;
  auto decoded = DecodeRouting(routing);
  if (!decoded.ok()) {
    a.blocked = std::string(decoded.status().message());
    return;
  }
  a.c = std::move(*decoded);
  // Queues of other ranks' sequences would be replayed in an invented order.
  if (call.order_lost && (a.c.dropped > 0 || a.c.kept_outside_choice)) {
    a.blocked =
        "order-redacted: the pool spans ranks, and redacted ids do not show the order of their "
        "sequences";
    return;
  }
  a.scores_of_sequences = ScoresOfSequences(a.c);
  const bool odd = a.c.kept_outside_choice || a.c.dropped > 0 || 2 * a.c.tied > a.c.judged_rows;
  const bool mapped = a.c.drops_recorded && routing.sample().has_routing_map();
  if (odd && mapped && !SetsCapacity(routing.config()) && ZeroDecides(a.c)) {
    a.zero_decides = true;
    Name(a, "token-choice", "own-scores", 1);
    a.leak_bits = 0;
    ListAssumptions(a);
    return;
  }
  if (!a.c.kept_outside_choice && a.c.dropped > 0) SetAside(a, world_size);
  a.saturation = FindSaturation(a.c);
  if (a.nothing_kept.any() && !a.saturation.contradiction.empty())
    absl::StrAppend(&a.saturation.contradiction, ". Besides, ", a.nothing_kept.Describe());
  if (a.c.kept_outside_choice) a.column = FindColumnChoice(a.c);
  if (a.c.dropped > 0 && !a.c.kept_outside_choice && a.c.ordered()) {
    AnalyseRefusals(a);
  } else if (a.columns()) {
    Name(a, a.c.experts == 1 ? "sequence-top-k" : "expert-choice", "expert-choice", 1);
    a.inversions.inversions = a.column.future_tokens;
    a.inversions.cross_sequence = a.column.cross_tokens;
  } else if (a.c.dropped == 0 && a.c.unexplained == 0 && a.c.explained > 0 &&
             !a.c.kept_outside_choice) {
    Name(a, "token-choice", "own-scores", 1);
    a.token_axis = FindTokenAxis(a.c);
    a.normalised_over_tokens = a.token_axis.bits >= kHintBits || NormalisedOverTokens(a.c);
  } else {
    a.explained_share = a.c.explained_share();
    // A map that keeps k experts per token shows choices too.
    const bool chosen = std::all_of(a.c.choices.begin(), a.c.choices.end(), [&](const Choice& x) {
      return x.kept &&
             (!a.c.judged(x.token) || a.c.kept_per_row[static_cast<size_t>(x.token)] == a.c.top_k);
    });
    if (a.c.unexplained > 0 && chosen) a.balance = FindBalance(a.c);
    if (a.balance.found()) Name(a, "balanced-assignment", "balanced-assignment", 1);
    if (a.c.unexplained > 0 && chosen && !a.balance.found()) a.token_axis = ReplayTokenSoftmax(a.c);
  }
  if (a.token_axis.found(kProofBits)) Name(a, "unknown", "normalised-over-tokens", 1);
  using Basis = Saturation::Basis;
  // With a declared capacity, the test for pieces of a cut counts every token that an expert holds.
  // If some are unknown, there is no evidence.
  if (a.saturation.basis == Basis::kDeclared)
    a.capacity_bits = a.firm_pools() || !a.c.holders_unknown ? HUGE_VAL : 0;
  if (a.saturation.basis == Basis::kExhibited) a.capacity_bits = a.saturation.bits;
  RequestInnocence(a);
  a.leak_bits = LeakBits(a);
  ListAssumptions(a);
}

}  // namespace

const RankedReplay* RoutingAnalysis::leak() const {
  // Exact replays come first, ordered by bits.
  return !ranked.empty() && ranked.front().exact && ranked.front().raw_bits > 0 ? &ranked.front()
                                                                                : nullptr;
}

bool RoutingAnalysis::rival() const {
  return leak() != nullptr && (first_come.exact_orders.empty() || leak()->tie_bits < kProofBits);
}

bool RoutingAnalysis::by_ties() const {
  const bool replayed = leak() != nullptr && leak()->raw_bits >= kHintBits;
  return !replayed && std::any_of(ranked.begin(), ranked.end(), [](const RankedReplay& replay) {
    return replay.exact && replay.tie_bits >= kHintBits;
  });
}

bool RoutingAnalysis::drawn(double bits) const {
  return NamesNoQueue(c.routing->config()) ||
         own_refusal_bits >= (bits < kProofBits ? kDrawnBits : bits);
}

bool RoutingAnalysis::pairs_speak(double bits) const {
  return certificate.pair.found() && drawn(bits) &&
         (pair_bits() >= bits || (certificate.raw_bits >= kProofBits && certificate.bits >= 1));
}

bool RoutingAnalysis::drawn_by_count() const {
  const bool counted = saturation.basis == Saturation::Basis::kDeclared &&
                       saturation.contradiction.empty() && firm_pools() && !c.holders_unknown;
  return counted && own_refusal_bits > certificate.bits;
}

double RoutingAnalysis::pair_bits() const {
  return drawn_by_count() ? own_refusal_bits : certificate.bits;
}

std::vector<std::shared_ptr<const RoutingAnalysis>> AnalyseRouting(const SiteStep& step) {
  using List = std::vector<std::shared_ptr<const RoutingAnalysis>>;
  const auto analyse = [&] {
    std::vector<std::shared_ptr<RoutingAnalysis>> calls;
    for (RoutingCall& call : JoinRanks(step)) {
      calls.push_back(nullptr);
      if (call.routing == nullptr && call.blocked.empty()) continue;
      auto a = std::make_shared<RoutingAnalysis>();
      a->ranks = call.ranks;
      a->rank_ends = call.rank_ends;
      a->blocked = call.blocked;
      a->assumptions = call.assumptions;
      a->joined = call.joined;
      if (a->blocked.empty()) Analyse(*a, call, step.world_size);
      calls.back() = std::move(a);
    }
    ExcludeStored(calls);
    return std::make_shared<List>(calls.begin(), calls.end());
  };
  return *step.cache.Get<const List>(analyse);
}

std::string BiasComplaint(const SiteStep& step, const RoutingCase& c) {
  if (!c.bias_matters) return "";
  if (c.routing->config().bias_captured() == v1::RoutingConfig::BIAS_CAPTURED_AFTER) {
    return "bias-captured-after: the expert bias was recorded after the scores of this batch; it "
           "may have been fitted on them";
  }
  const std::string& mine = c.routing->sample().expert_bias().data();
  for (const Item& item : step.items) {
    if (!item.evidence->routing().sample().has_expert_bias()) continue;
    if (item.evidence->routing().sample().expert_bias().data() == mine) continue;
    return absl::StrCat(
        "bias-differs: rank ", item.source->rank(), ", call ", item.evidence->call(),
        " of this step used a different expert bias; a stored bias is the same for all");
  }
  return "";
}

}  // namespace plumbline::analysis
