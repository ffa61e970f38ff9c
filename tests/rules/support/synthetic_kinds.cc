// Routers and the ways of recording them: the populations of the truth tests.
#include <algorithm>

#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::rules::testing {
namespace {

using Edit = std::function<void(RoutingSpec&)>;

Kind Make(const std::string& name, RouterPolicy policy, Edit edit = {}) {
  return {name, PolicyLeaks(policy), [policy, edit](uint64_t seed) {
            RoutingSpec spec = OrdinarySpec(policy, seed);
            if (edit) edit(spec);
            return spec;
          }};
}

void NoPool(RoutingSpec& s) { s.record_pool_id = s.pool_metadata = false; }
void PoolByMetadata(RoutingSpec& s) { s.record_pool_id = false; }
void Undeclared(RoutingSpec& s) { s.declare_capacity = false; }
void AsHeld(RoutingSpec& s) { s.declare_as_held = true; }
// Records the pieces as one pool whose capacity is what the full experts hold together.
void OnePool(RoutingSpec& s) {
  s.whole_pool = true;
  s.capacity_factor = 0.5;
  AsHeld(s);
}
// Records no pool per piece, only that this is one micro-batch.
void HiddenPieces(RoutingSpec& s) {
  s.record_pool_id = false;
  s.pool_metadata = true;
}

}  // namespace

std::vector<Kind> CleanKinds() {
  using P = RouterPolicy;
  std::vector<Kind> kinds = {
      Make("dropless", P::kTokenChoice),
      Make("dropless under a capacity never reached", P::kTokenChoice,
           [](RoutingSpec& s) { s.declared_capacity = s.sequences * s.length; }),
      Make("dropless under a low capacity declared by mistake", P::kTokenChoice,
           [](RoutingSpec& s) { s.declared_capacity = s.length / 4; }),
      Make("dropless bf16", P::kTokenChoice, [](RoutingSpec& s) { s.dtype = DType::kBF16; }),
      Make("dropless quantised", P::kTokenChoice, [](RoutingSpec& s) { s.quantum = 0.25; }),
      Make("group-limited", P::kGroupLimited),
      Make("group-limited unrecorded", P::kGroupLimited,
           [](RoutingSpec& s) { s.record_groups = false; }),
      Make("stored bias", P::kStoredBias),
      Make("stored bias of unknown time", P::kStoredBias,
           [](RoutingSpec& s) { s.bias_captured = v1::RoutingConfig::BIAS_CAPTURED_ABSENT; }),
      Make("hidden bias", P::kStoredBias, [](RoutingSpec& s) { s.record_bias = false; }),
      Make("hidden bias, capacity declared by mistake", P::kStoredBias,
           [](RoutingSpec& s) {
             s.record_bias = false;
             s.declared_capacity = s.top_k * s.sequences * s.length / s.experts;
           }),
      Make("stored threshold", P::kStoredThreshold),
      Make("stored threshold, capacity declared by mistake", P::kStoredThreshold,
           [](RoutingSpec& s) {
             s.declared_capacity = s.top_k * s.sequences * s.length / s.experts / 2;
           }),
      Make("threshold choice", P::kThresholdChoice),
      Make("threshold choice, capacity declared by mistake", P::kThresholdChoice,
           [](RoutingSpec& s) {
             s.declared_capacity = s.top_k * s.sequences * s.length / s.experts;
           }),
      Make("null experts", P::kNullExperts),
      Make("null experts, pool unrecorded", P::kNullExperts, NoPool),
      Make("shared experts", P::kSharedExperts),
      Make("noisy top-k", P::kNoisyTopK),
      Make("unrecorded noise", P::kNoisyTopK, [](RoutingSpec& s) { s.declare_randomness = false; }),
      Make("sampled second expert", P::kSampledSecond),
      Make("sampled second expert undeclared", P::kSampledSecond,
           [](RoutingSpec& s) { s.declare_randomness = false; }),
      Make("random second expert", P::kRandomSecond),
      Make("random second expert undeclared", P::kRandomSecond,
           [](RoutingSpec& s) { s.declare_randomness = false; }),
      Make("own threshold", P::kOwnThreshold),
      Make("own threshold, map alone", P::kOwnThreshold,
           [](RoutingSpec& s) { s.recorded = Recorded::kMapOnly; }),
      Make("own threshold, prompts repeated 16 times", P::kOwnThreshold,
           [](RoutingSpec& s) {
             s.sequences = 32;
             s.repeat = 16;
           }),
      Make("random drop", P::kRandomDrop),
      Make("random drop undeclared", P::kRandomDrop,
           [](RoutingSpec& s) {
             s.declare_randomness = false;
             s.router.drop_rate = 0.5;
           }),
      Make("round robin", P::kRoundRobin),
      Make("round robin, map alone", P::kRoundRobin,
           [](RoutingSpec& s) { s.recorded = Recorded::kMapOnly; }),
      Make("hash table", P::kHashTable),
      Make("hash table, map alone", P::kHashTable,
           [](RoutingSpec& s) { s.recorded = Recorded::kMapOnly; }),
      Make("replayed routing", P::kReplayed),
      Make("fifo", P::kFifo),
      Make("fifo undeclared", P::kFifo, Undeclared),
      Make("fifo, pool by metadata", P::kFifo, PoolByMetadata),
      Make("fifo, pool unrecorded", P::kFifo, NoPool),
      Make("fifo, pool is the sequence", P::kFifo,
           [](RoutingSpec& s) { s.pool = PoolUnit::kSequence; }),
      Make("fifo, packed documents share a pool", P::kFifo,
           [](RoutingSpec& s) {
             s.pool = PoolUnit::kPack;
             s.packed = true;
           }),
      Make("fifo, capacity declared too low", P::kFifo,
           [](RoutingSpec& s) { s.declared_offset = -1; }),
      Make("fifo, capacity declared too high", P::kFifo,
           [](RoutingSpec& s) { s.declared_offset = 1; }),
      Make("fifo, mask alone", P::kFifo, [](RoutingSpec& s) { s.recorded = Recorded::kMaskOnly; }),
      Make("fifo, map padded to capacity", P::kFifo, [](RoutingSpec& s) { s.pad_map = true; }),
      Make("fifo, tied scores", P::kFifo, [](RoutingSpec& s) { s.quantum = 0.25; }),
      Make("fifo, prompts repeated 16 times", P::kFifo,
           [](RoutingSpec& s) {
             s.sequences = 32;
             s.repeat = 16;
           }),
      Make("fifo chunks", P::kFifoChunks),
      Make("fifo chunks, unrecorded", P::kFifoChunks, HiddenPieces),
      Make("fifo chunks, unrecorded and undeclared", P::kFifoChunks,
           [](RoutingSpec& s) {
             HiddenPieces(s);
             Undeclared(s);
           }),
      Make("fifo chunks, short one first, unrecorded", P::kFifoChunks,
           [](RoutingSpec& s) {
             HiddenPieces(s);
             s.chunks = 3;
             s.router.short_chunk_first = true;
           }),
      Make("fifo unequal chunks", P::kFifoUnequalChunks),
      Make("fifo unequal chunks, unrecorded", P::kFifoUnequalChunks, HiddenPieces),
      Make("fifo unequal chunks, unrecorded and undeclared", P::kFifoUnequalChunks,
           [](RoutingSpec& s) {
             HiddenPieces(s);
             Undeclared(s);
           }),
      Make("fifo a sequence", P::kFifoSequence),
      Make("fifo a sequence, pool unrecorded", P::kFifoSequence, NoPool),
      Make("fifo over the first choices", P::kFifoFirstRanks),
      Make("fifo over the first choices, undeclared", P::kFifoFirstRanks, Undeclared),
      Make("fifo, capacity a choice rank", P::kFifoRankCapacity),
      Make("fifo, capacity a choice rank, undeclared", P::kFifoRankCapacity, Undeclared),
      Make("fifo, capacity of an expert's own", P::kFifoExpertCapacity),
      Make("fifo, capacity of an expert's own, one declared", P::kFifoExpertCapacity,
           [](RoutingSpec& s) {
             s.declared_capacity = std::max(1, s.top_k * s.sequences * s.length / s.experts);
           }),
      Make("own threshold, then fifo", P::kOwnThresholdFifo,
           [](RoutingSpec& s) { s.capacity_factor = 0.5; }),
      Make("own threshold, then fifo, undeclared", P::kOwnThresholdFifo,
           [](RoutingSpec& s) {
             s.capacity_factor = 0.5;
             Undeclared(s);
           }),
      Make("stored threshold, then fifo", P::kStoredThresholdFifo,
           [](RoutingSpec& s) { s.capacity_factor = 0.5; }),
      Make("stored threshold, then fifo, undeclared", P::kStoredThresholdFifo,
           [](RoutingSpec& s) {
             s.capacity_factor = 0.5;
             Undeclared(s);
           }),
      Make("prefix budget", P::kPrefixBudget),
      Make("prefix budget undeclared", P::kPrefixBudget, Undeclared),
      Make("window budget", P::kWindowBudget),
      Make("window budget, pool unrecorded", P::kWindowBudget, NoPool),
      Make("all or nothing", P::kAllOrNothing),
      Make("all or nothing undeclared", P::kAllOrNothing, Undeclared),
      Make("greedy overflow", P::kGreedyOverflow),
      Make("greedy overflow, map alone", P::kGreedyOverflow,
           [](RoutingSpec& s) { s.recorded = Recorded::kMapOnly; }),
      Make("same position mixing", P::kSamePositionMixing,
           [](RoutingSpec& s) {
             s.sequences = 8;
             s.pool_metadata = false;
           }),
      Make("same position mixing, pool unrecorded", P::kSamePositionMixing,
           [](RoutingSpec& s) {
             s.sequences = 8;
             NoPool(s);
           }),
  };
  return kinds;
}

std::vector<Kind> PosedKinds() {
  using P = RouterPolicy;
  return {
      Make("stored table", P::kStoredTable),
      Make("stored table, capacity declared as held", P::kStoredTable, AsHeld),
      Make("stored table of one expert, capacity declared as held", P::kStoredTable,
           [](RoutingSpec& s) {
             s.table_experts = 1;
             AsHeld(s);
           }),
      Make("stored table, then fifo", P::kStoredTableFifo,
           [](RoutingSpec& s) { s.capacity_factor = 0.5; }),
      Make("stored table, then fifo, undeclared", P::kStoredTableFifo,
           [](RoutingSpec& s) {
             s.capacity_factor = 0.5;
             Undeclared(s);
           }),
      Make("fifo chunks, recorded as one pool", P::kFifoChunks, OnePool),
      Make("fifo chunks, recorded as one pool, undeclared", P::kFifoChunks,
           [](RoutingSpec& s) {
             OnePool(s);
             Undeclared(s);
           }),
      Make("fifo unequal chunks, recorded as one pool", P::kFifoUnequalChunks, OnePool),
      Make("fifo unequal chunks, recorded as one pool, undeclared", P::kFifoUnequalChunks,
           [](RoutingSpec& s) {
             OnePool(s);
             Undeclared(s);
           }),
  };
}

std::vector<Kind> LeakingKinds() {
  using P = RouterPolicy;
  std::vector<Kind> kinds;
  const auto key = [](ScoreKey k) {
    return [k](RoutingSpec& s) { s.router.key = s.router.combine = k; };
  };
  const auto tie = [](TieRule rule) {
    return [rule](RoutingSpec& s) { s.router.tie_rule = rule; };
  };
  const auto second = [](RoutingSpec& s) { s.top_k = std::max(s.top_k, 2); };
  // With eight sequences or fewer, budgets are below the sequence's share.
  const auto below_one = [](RoutingSpec& s) {
    s.capacity_factor = std::min(s.capacity_factor, 0.75);
  };
  kinds = {
      Make("drop by logit", P::kScore, key(ScoreKey::kLogits)),
      Make("drop by softmax", P::kScore, key(ScoreKey::kSoftmax)),
      Make("drop by softmax of the chosen", P::kScore,
           [](RoutingSpec& s) {
             s.top_k = std::max(s.top_k, 2);
             s.router.key = s.router.combine = ScoreKey::kSoftmaxChosen;
           }),
      Make("drop by sigmoid share", P::kScore,
           [](RoutingSpec& s) {
             s.top_k = std::max(s.top_k, 2);
             s.router.key = s.router.combine = ScoreKey::kSigmoidShare;
           }),
      Make("drop by recorded probability", P::kScore,
           [](RoutingSpec& s) {
             s.top_k = std::max(s.top_k, 2);
             s.router.key = s.router.combine = ScoreKey::kSqrtSoftplusShare;
             s.probs = RecordedProbs::kDense;
           }),
      Make("drop by softmax undeclared", P::kScore, Undeclared),
      Make("drop by softmax, pool by metadata", P::kScore, PoolByMetadata),
      Make("drop by softmax, map padded to capacity", P::kScore,
           [](RoutingSpec& s) { s.pad_map = true; }),
      Make("drop by softmax, rank-major", P::kScoreRankMajor, second),
      Make("batch-prioritised", P::kPriority),
      Make("batch-prioritised by sum", P::kPriority,
           [](RoutingSpec& s) { s.router.priority_sum = true; }),
      Make("batch-prioritised, rank-major", P::kPriorityRankMajor, second),
      Make("rank-major", P::kRankMajor, second),
      Make("rank-major undeclared", P::kRankMajor,
           [](RoutingSpec& s) {
             s.top_k = std::max(s.top_k, 2);
             Undeclared(s);
           }),
      Make("random token selection", P::kRandomSelection),
      Make("ties: last first", P::kTieOrder, tie(TieRule::kLastFirst)),
      Make("ties: strided", P::kTieOrder, tie(TieRule::kStrided)),
      Make("ties: partitioned", P::kTieOrder, tie(TieRule::kPartitioned)),
      Make("expert choice", P::kExpertChoice),
      Make("expert choice by logit", P::kExpertChoice, key(ScoreKey::kLogits)),
      Make("expert choice undeclared", P::kExpertChoice, Undeclared),
      Make("mixture of depths", P::kSequenceTopK,
           [](RoutingSpec& s) {
             s.experts = s.top_k = 1;
             s.capacity_factor = 0.5;
             s.pool = PoolUnit::kSequence;
           }),
      Make("sequence top-k", P::kSequenceTopK, below_one),
      Make("sinkhorn", P::kSinkhorn),
      Make("auction", P::kAuction),
      Make("bias fitted in the batch", P::kFittedBias),
      Make("overflow re-routed", P::kOverflowReroute, below_one),
      Make("fifo in zigzag order", P::kZigzagFifo),
      Make("fifo from the end", P::kReverseFifo),
      Make("atomics race", P::kAtomicsRace),
  };
  return kinds;
}

}  // namespace plumbline::rules::testing
