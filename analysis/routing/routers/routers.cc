#include "analysis/routing/routers/routers.h"

#include <algorithm>
#include <iterator>

#include "analysis/routing/routers/state.h"

namespace plumbline::analysis {
namespace {

using routers::State;

constexpr RouterClass kClean = RouterClass::kClean;
constexpr RouterClass kBatch = RouterClass::kBatchDependent;
constexpr RouterClass kFuture = RouterClass::kFutureLeak;

struct NamedPolicy {
  RouterPolicy policy;
  const char* name;
  RouterClass kind;
};
constexpr NamedPolicy kPolicies[] = {
    {RouterPolicy::kTokenChoice, "token-choice", kClean},
    {RouterPolicy::kGroupLimited, "group-limited", kClean},
    {RouterPolicy::kStoredBias, "stored-bias", kClean},
    {RouterPolicy::kStoredThreshold, "stored-threshold", kClean},
    {RouterPolicy::kThresholdChoice, "threshold-choice", kClean},
    {RouterPolicy::kNullExperts, "null-experts", kClean},
    {RouterPolicy::kSharedExperts, "shared-experts", kClean},
    {RouterPolicy::kNoisyTopK, "noisy-top-k", kClean},
    {RouterPolicy::kSampledSecond, "sampled-second", kClean},
    {RouterPolicy::kRandomSecond, "random-second", kClean},
    {RouterPolicy::kOwnThreshold, "own-threshold", kClean},
    {RouterPolicy::kRandomDrop, "random-drop", kClean},
    {RouterPolicy::kRoundRobin, "round-robin", kClean},
    {RouterPolicy::kHashTable, "hash-table", kClean},
    {RouterPolicy::kReplayed, "replayed", kClean},
    {RouterPolicy::kFifo, "fifo-capacity", kBatch},
    {RouterPolicy::kFifoChunks, "fifo-chunks", kBatch},
    {RouterPolicy::kFifoUnequalChunks, "fifo-unequal-chunks", kBatch},
    {RouterPolicy::kFifoSequence, "fifo-sequence", kClean},
    {RouterPolicy::kFifoFirstRanks, "fifo-first-ranks", kBatch},
    {RouterPolicy::kFifoRankCapacity, "fifo-rank-capacity", kBatch},
    {RouterPolicy::kFifoExpertCapacity, "fifo-expert-capacity", kBatch},
    {RouterPolicy::kOwnThresholdFifo, "own-threshold-fifo", kBatch},
    {RouterPolicy::kStoredThresholdFifo, "stored-threshold-fifo", kBatch},
    {RouterPolicy::kPrefixBudget, "prefix-budget", kBatch},
    {RouterPolicy::kWindowBudget, "window-budget", kBatch},
    {RouterPolicy::kAllOrNothing, "all-or-nothing", kBatch},
    {RouterPolicy::kGreedyOverflow, "greedy-overflow", kBatch},
    {RouterPolicy::kSamePositionMixing, "same-position-mixing", kBatch},
    {RouterPolicy::kScore, "score-capacity", kFuture},
    {RouterPolicy::kPriority, "priority-capacity", kFuture},
    {RouterPolicy::kPriorityRankMajor, "priority-rank-major", kFuture},
    {RouterPolicy::kRankMajor, "rank-major-capacity", kFuture},
    {RouterPolicy::kRandomSelection, "random-capacity", kFuture},
    {RouterPolicy::kTieOrder, "tie-order-capacity", kFuture},
    {RouterPolicy::kExpertChoice, "expert-choice", kFuture},
    {RouterPolicy::kSequenceTopK, "sequence-top-k", kFuture},
    {RouterPolicy::kSinkhorn, "sinkhorn", kFuture},
    {RouterPolicy::kAuction, "auction", kFuture},
    {RouterPolicy::kFittedBias, "fitted-bias", kFuture},
    {RouterPolicy::kOverflowReroute, "overflow-reroute", kFuture},
    {RouterPolicy::kZigzagFifo, "zigzag-fifo", kFuture},
    {RouterPolicy::kReverseFifo, "reverse-fifo", kFuture},
    {RouterPolicy::kAtomicsRace, "atomics-race", RouterClass::kNondeterministic},
    {RouterPolicy::kStoredTable, "stored-table", kClean},
    {RouterPolicy::kStoredTableFifo, "stored-table-fifo", kBatch},
    {RouterPolicy::kScoreRankMajor, "score-rank-major", kFuture},
};

// Sets the experts that a token chooses. A stored bias and group limits apply under every policy.
void Choose(State& s, RouterPolicy policy) {
  if (!s.p.bias.empty() || s.p.groups > 1) AddBias(s, s.p.bias);
  if (s.p.groups > 1) LimitGroups(s);
  switch (policy) {
    case RouterPolicy::kRoundRobin:
      return ChooseRoundRobin(s);
    case RouterPolicy::kHashTable:
      return ChooseByHash(s);
    case RouterPolicy::kReplayed:
      return ChooseReplayed(s);
    case RouterPolicy::kSharedExperts:
      ReserveShared(s);
      break;
    case RouterPolicy::kNoisyTopK:
      AddNoise(s);
      break;
    case RouterPolicy::kSampledSecond:
      SampleLower(s);
      break;
    case RouterPolicy::kSinkhorn:
      Sinkhorn(s);
      break;
    case RouterPolicy::kFittedBias:
      FitBias(s);
      break;
    default:
      break;
  }
  ChooseTopK(s);
}

// Drops choices by the token's own data.
void DropOwn(State& s, RouterPolicy policy) {
  switch (policy) {
    case RouterPolicy::kStoredThreshold:
    case RouterPolicy::kStoredThresholdFifo:
      return DropBelowThreshold(s);
    case RouterPolicy::kStoredTable:
    case RouterPolicy::kStoredTableFifo:
      return DropByTable(s);
    case RouterPolicy::kOwnThreshold:
    case RouterPolicy::kOwnThresholdFifo:
      return DropBelowOwnBest(s);
    case RouterPolicy::kRandomSecond:
      return DropLowerAtRandom(s);
    case RouterPolicy::kNullExperts:
      return Drop(
          s, [&](int32_t t, int32_t j) { return s.Expert(t, j) < s.b.experts - s.p.null_experts; });
    case RouterPolicy::kRandomDrop:
      return Drop(s, [&](int32_t t, int32_t j) {
        return s.Draw(t, static_cast<uint64_t>(j)) >= s.p.drop_rate;
      });
    case RouterPolicy::kFifoFirstRanks:
      return Drop(s, [&](int32_t, int32_t j) { return j < s.p.first_ranks; });
    default:
      return;
  }
}

// Decides which choices are admitted.
void Admit(State& s, RouterPolicy policy) {
  switch (policy) {
    case RouterPolicy::kFifoChunks:
      CutIntoChunks(s);
      return Queue(s, RowOrder(s), false);
    case RouterPolicy::kFifoUnequalChunks:
      CutUnequally(s);
      return Queue(s, RowOrder(s), false);
    case RouterPolicy::kFifoSequence:
      CutBySequence(s);
      return Queue(s, RowOrder(s), false);
    case RouterPolicy::kFifo:
    case RouterPolicy::kFifoFirstRanks:
    case RouterPolicy::kFifoExpertCapacity:
    case RouterPolicy::kOwnThresholdFifo:
    case RouterPolicy::kStoredThresholdFifo:
    case RouterPolicy::kStoredTableFifo:
      return Queue(s, RowOrder(s), false);
    case RouterPolicy::kRankMajor:
      return Queue(s, RowOrder(s), true);
    case RouterPolicy::kZigzagFifo:
      return Queue(s, ZigzagOrder(s), false);
    case RouterPolicy::kReverseFifo:
      return Queue(s, ReverseOrder(s), false);
    case RouterPolicy::kAtomicsRace:
      return Queue(s, ArrivalOrder(s), false);
    case RouterPolicy::kPriority:
      return Queue(s, PriorityOrder(s), false);
    case RouterPolicy::kPriorityRankMajor:
      return Queue(s, PriorityOrder(s), true);
    case RouterPolicy::kFifoRankCapacity:
      return QueueByRank(s);
    case RouterPolicy::kPrefixBudget:
      return QueuePrefixBudget(s);
    case RouterPolicy::kWindowBudget:
      return QueueWindow(s);
    case RouterPolicy::kAllOrNothing:
      return QueueAllOrNothing(s);
    case RouterPolicy::kGreedyOverflow:
      return OverflowGreedily(s);
    case RouterPolicy::kOverflowReroute:
      return RerouteOverflow(s);
    case RouterPolicy::kScore:
      return KeepHighest(
          s, [&](int32_t t, int32_t j) { return std::pair(0, KeyOf(s, s.p.key, t, j)); });
    case RouterPolicy::kScoreRankMajor:
      return KeepHighest(
          s, [&](int32_t t, int32_t j) { return std::pair(-j, KeyOf(s, s.p.key, t, j)); });
    case RouterPolicy::kRandomSelection:
      return KeepHighest(s, [&](int32_t t, int32_t j) {
        return std::pair(0, s.Draw(t, static_cast<uint64_t>(s.Expert(t, j))));
      });
    case RouterPolicy::kTieOrder:
      return KeepByTieRule(s);
    case RouterPolicy::kAuction:
      return Auction(s);
    default:
      return;
  }
}

// Applies policies that fill the map by expert. If tokens choose, returns false.
bool FillByColumn(State& s, RouterPolicy policy) {
  const bool by_logits = s.p.key == ScoreKey::kLogits;
  switch (policy) {
    case RouterPolicy::kExpertChoice:
      ExpertsChoose(s, by_logits);
      return true;
    case RouterPolicy::kSequenceTopK:
      CutBySequence(s);
      ExpertsChoose(s, by_logits || s.b.experts == 1);
      return true;
    case RouterPolicy::kSamePositionMixing:
      CutByPosition(s);
      ExpertsChoose(s, by_logits);
      return true;
    case RouterPolicy::kThresholdChoice:
      ChooseAboveThreshold(s);
      return true;
    default:
      return false;
  }
}

const NamedPolicy* Find(RouterPolicy policy) {
  const auto* found =
      std::find_if(std::begin(kPolicies), std::end(kPolicies),
                   [&](const NamedPolicy& named) { return named.policy == policy; });
  return found == std::end(kPolicies) ? nullptr : found;
}

}  // namespace

RouterResult Route(const RouterBatch& batch, RouterPolicy policy,
                   const RouterParameters& parameters) {
  State s(batch, parameters);
  if (FillByColumn(s, policy)) {
    FillProbs(s);
    return std::move(s.out);
  }
  Choose(s, policy);
  DropOwn(s, policy);
  Admit(s, policy);
  for (int32_t t = 0; t < batch.tokens; ++t) {
    for (int32_t j = 0; j < batch.top_k; ++j) {
      if (s.out.keep[s.Slot(t, j)]) s.out.map[s.At(t, s.Expert(t, j))] = 1;
    }
  }
  if (policy == RouterPolicy::kSharedExperts) AddShared(s);
  FillProbs(s);
  return std::move(s.out);
}

RouterClass PolicyClass(RouterPolicy policy) {
  const NamedPolicy* named = Find(policy);
  return named == nullptr ? RouterClass::kNondeterministic : named->kind;
}

bool PolicyLeaks(RouterPolicy policy) {
  const RouterClass kind = PolicyClass(policy);
  return kind == RouterClass::kFutureLeak || kind == RouterClass::kNondeterministic;
}

const char* PolicyName(RouterPolicy policy) {
  const NamedPolicy* named = Find(policy);
  return named == nullptr ? "?" : named->name;
}

bool ParsePolicy(const std::string& name, RouterPolicy* policy) {
  for (const NamedPolicy& named : kPolicies) {
    if (name != named.name) continue;
    *policy = named.policy;
    return true;
  }
  return false;
}

std::vector<RouterPolicy> AllPolicies() {
  std::vector<RouterPolicy> all;
  for (const NamedPolicy& named : kPolicies) all.push_back(named.policy);
  return all;
}

}  // namespace plumbline::analysis
