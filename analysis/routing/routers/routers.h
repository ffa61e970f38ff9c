// Reference implementation of every routing policy of the taxonomy, simple instead of fast and in
// double precision. The tests use it as ground truth (run twice with another suffix), and a replay
// of a named policy runs it. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/router/scores.h"

namespace plumbline::analysis {

// A batch as a router receives it, rows in the order of its queue.
struct RouterBatch {
  int32_t tokens = 0;
  int32_t experts = 0;
  int32_t top_k = 1;
  std::vector<double> logits;     // [T,E]; NaN ranks last
  std::vector<int32_t> pool;      // [T], >= 0; tokens of one pool compete
  std::vector<uint8_t> padding;   // [T]; if empty, there is none
  std::vector<int64_t> sequence;  // [T]; if empty, there is one sequence
  std::vector<int64_t> position;  // [T]; if empty, the row number
  std::vector<uint64_t> token;    // [T] token ids, only for hash tables; may be empty
};

enum class RouterPolicy {
  // Clean: decided by a token's own scores, position, id or stored statistics.
  kTokenChoice,      // dropless top-k
  kGroupLimited,     // top-k within the best `top_groups` of `groups`
  kStoredBias,       // top-k of function(logits) + stored bias
  kStoredThreshold,  // top-k without experts whose logit is below the stored threshold
  kThresholdChoice,  // every expert whose stored threshold the token's logit reaches
  kNullExperts,      // the last `null_experts` do nothing: choices of them are dropped
  kSharedExperts,    // the first `shared_experts` take every token, top-k of the others
  kNoisyTopK,        // top-k of the logits plus the token's own stored noise
  kSampledSecond,  // the best one; the others are drawn with probability proportional to their gate
  kRandomSecond,   // top-k; a lower choice is kept with a probability by its gate (GShard)
  kOwnThreshold,   // a token drops its own choices below `own_fraction` of its best probability
  kRandomDrop,     // own choices are dropped at `drop_rate` by the token's own draw
  kRoundRobin,     // experts by position
  kHashTable,      // experts by a hash of the token's id
  kReplayed,       // choices are taken from the table `replayed`
  // Causal in time, but dependent on the batch.
  kFifo,        // capacity, first come first served over the joint top-k order
  kFifoChunks,  // the same, with each pool cut into `chunks` equal pieces, each with a separate
                // capacity
  kFifoUnequalChunks,    // the same, with pieces of `chunk_rows`
  kFifoSequence,         // each sequence of a pool has its own capacity (no batch dependence)
  kFifoFirstRanks,       // only the first `first_ranks` choices are used, the others are dropped
  kFifoRankCapacity,     // one queue and capacity (`rank_capacity`) per choice rank
  kFifoExpertCapacity,   // stored unequal capacities (`expert_capacity`)
  kOwnThresholdFifo,     // kOwnThreshold, then a queue for the remaining choices
  kStoredThresholdFifo,  // kStoredThreshold, then a queue for the remaining choices
  kPrefixBudget,         // at row i of its pool an expert holds at most ceil(factor*k*(i+1)/E)
  kWindowBudget,         // an expert holds at most `capacity` of the last `window` rows
  kAllOrNothing,         // first come; if one of a token's experts is full, all refuse it
  kGreedyOverflow,       // a refused token goes to its next best expert with free capacity, in time
                         // order
  kSamePositionMixing,   // experts choose among the tokens of one position across sequences
  // Future leaks.
  kScore,              // capacity; each expert keeps the highest of `key`
  kPriority,           // capacity; tokens queue by their best (or summed) `key`
  kPriorityRankMajor,  // the same, with all second choices after all first choices
  kRankMajor,          // capacity; all second choices queue after all first choices
  kRandomSelection,    // capacity; each expert keeps the highest of fixed random draws
  kTieOrder,           // top-C of a 0/1 mask, ties in the order `tie_rule`
  kExpertChoice,       // each expert takes its `capacity` best tokens of the pool
  kSequenceTopK,       // each expert takes its `capacity` best tokens of each sequence
  kSinkhorn,           // top-k after `iterations` of balancing over the pool
  kAuction,            // balanced assignment: every expert gets ceil(n/E) tokens, maximal in sum
  kFittedBias,         // top-k of function(logits) + a bias fitted on this batch
  kOverflowReroute,    // refused tokens go to the next free expert after all own choices
  kZigzagFifo,         // first come in the order of a zigzag context-parallel layout
  kReverseFifo,        // first come from the end
  // Nondeterministic.
  kAtomicsRace,  // first come in an arrival order that differs between runs (`run`)
  // Clean, but dependent on the batch.
  kStoredTable,      // top-k without what a stored table of positions and experts refuses
  kStoredTableFifo,  // the same, then a queue for the remaining choices
  // A future leak. The numbers must not change, because the simulations' seeds contain them.
  kScoreRankMajor,  // as kScore, with all first choices before all second choices
};

// Inputs, in addition to the token's own prefix, on which an assignment may depend.
enum class RouterClass { kClean, kBatchDependent, kFutureLeak, kNondeterministic };

// The value by which tokens are ranked for an expert.
enum class ScoreKey {
  kLogits,
  kSoftmax,
  kSoftmaxChosen,      // softmax over the token's k choices
  kSigmoidShare,       // sigmoid divided by its sum over the k choices
  kSqrtSoftplusShare,  // sqrt(softplus) divided by its sum over the k choices
};

// The order in which top-C of a 0/1 mask takes equal ones.
enum class TieRule {
  kLastFirst,
  kStrided,      // by row modulo 8: lanes of a parallel selection
  kPartitioned,  // as a partition leaves them: gaps at the front are filled from the end
};

struct RouterParameters {
  int64_t capacity = 1;                  // tokens that an expert takes from one unit of competition
  std::vector<int64_t> expert_capacity;  // [E], for kFifoExpertCapacity
  std::vector<int64_t> rank_capacity;    // [k], for kFifoRankCapacity
  int chunks = 1;
  bool short_chunk_first = false;   // place of the short one of equal chunks
  std::vector<int64_t> chunk_rows;  // rows of each unequal chunk; the last takes the rest
  std::vector<int64_t>
      chunk_capacity;        // of each unequal chunk of a single pool; if empty: `capacity`
  uint64_t seed = 1;         // of all draws; a draw is determined by (seed, sequence, position)
  uint64_t run = 0;          // selects the arrival order of kAtomicsRace
  std::vector<double> bias;  // [E] stored, added to function(logits)
  std::vector<double> thresholds;  // [E] stored, on the logits
  std::vector<uint8_t>
      refusals;  // [positions,E] stored, 1: refused; positions beyond it are not refused
  ScoreFunction function = ScoreFunction::kIdentity;
  int groups = 1;  // must divide E
  int top_groups = 1;
  bool group_sum2 = false;  // a group's score is the sum of its two best, not its best
  int null_experts = 1;
  int shared_experts = 1;
  int first_ranks = 1;
  double own_fraction = 0.5;
  double drop_rate = 0.25;
  double noise = 1;                       // standard deviation of kNoisyTopK
  double capacity_factor = 1;             // used by kPrefixBudget
  int window = 32;                        // rows
  ScoreKey key = ScoreKey::kSoftmax;      // used by kScore and kPriority*; experts that choose
                                          // support kLogits and kSoftmax
  ScoreKey combine = ScoreKey::kSoftmax;  // kind of RouterResult::probs
  bool priority_sum = false;  // queue by the sum of the chosen probabilities, not the best
  TieRule tie_rule = TieRule::kLastFirst;
  int iterations = 16;            // number of iterations of Sinkhorn and of the fitted bias
  double bias_rate = 0.02;        // step of the fitted bias
  int context_ranks = 2;          // number of ranks of the zigzag layout
  bool padding_competes = false;  // padding is routed like any token
  std::vector<int32_t> replayed;  // [T,k] of kReplayed
};

struct RouterResult {
  std::vector<int32_t> indices;  // [T,k] in rank order, as finally used; empty if experts chose
  std::vector<uint8_t> keep;     // [T,k]; empty if experts chose
  std::vector<uint8_t> map;      // [T,E] kept
  std::vector<double> probs;     // [T,E] by RouterParameters::combine, kept or not
  std::vector<int32_t> pool;     // [T] the real pools of competition: pieces of the batch's pools
};

RouterResult Route(const RouterBatch& batch, RouterPolicy policy,
                   const RouterParameters& parameters);

RouterClass PolicyClass(RouterPolicy policy);
// Returns true if, by the policy's definition, the assignment of a token can depend on later
// tokens. (An arrival order does, because the first to arrive is served.)
bool PolicyLeaks(RouterPolicy policy);
const char* PolicyName(RouterPolicy policy);
// Returns false if there is no such policy.
bool ParsePolicy(const std::string& name, RouterPolicy* policy);
// Returns all of them, in the order of the enum.
std::vector<RouterPolicy> AllPolicies();

}  // namespace plumbline::analysis
