// Random shapes, dtypes, pools and orders for the routers of the truth tests.
#include <algorithm>

#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::rules::testing {
namespace {

template <typename... T>
auto Pick(std::mt19937_64& rng, T... values) {
  const std::vector<std::common_type_t<T...>> list{values...};
  return list[rng() % list.size()];
}

int CountFor(RouterPolicy policy, int experts) {
  return policy == RouterPolicy::kNullExperts || policy == RouterPolicy::kSharedExperts
             ? std::max(1, experts / 8)
             : 0;
}

// Adjusts shapes to the policy's needs.
void Fit(RoutingSpec& spec, std::mt19937_64& rng) {
  RouterParameters& r = spec.router;
  switch (spec.policy) {
    case RouterPolicy::kGroupLimited:
      if (spec.experts % 4 != 0 || spec.experts < 8) spec.experts = 8;
      r.groups = 4;
      r.top_groups = 2;
      r.group_sum2 = Pick(rng, true, false);
      r.function = Pick(rng, ScoreFunction::kIdentity, ScoreFunction::kSigmoid);
      spec.top_k = std::min(spec.top_k, 2 * spec.experts / 4);
      break;
    case RouterPolicy::kStoredBias:
      r.function = Pick(rng, ScoreFunction::kSigmoid, ScoreFunction::kSoftmax);
      break;
    case RouterPolicy::kNullExperts:
    case RouterPolicy::kSharedExperts:
      spec.experts = std::max(spec.experts, 2);
      r.null_experts = r.shared_experts = CountFor(spec.policy, spec.experts);
      spec.top_k = std::min(spec.top_k, spec.experts - r.shared_experts);
      break;
    case RouterPolicy::kSampledSecond:
    case RouterPolicy::kRandomSecond:
    case RouterPolicy::kFifoFirstRanks:
      spec.experts = std::max(spec.experts, 2);
      spec.top_k = std::max(spec.top_k, 2);
      r.first_ranks = std::max(1, spec.top_k / 2);
      break;
    case RouterPolicy::kPriority:
    case RouterPolicy::kPriorityRankMajor:
      r.key = ScoreKey::kSoftmax;
      break;
    case RouterPolicy::kScore:
    case RouterPolicy::kScoreRankMajor:
      // The share of an only choice is 1, so it cannot rank. A key that the rules do not know is
      // recorded.
      if (spec.top_k == 1 && r.key != ScoreKey::kLogits) r.key = r.combine = ScoreKey::kSoftmax;
      if (r.key == ScoreKey::kSqrtSoftplusShare) spec.probs = RecordedProbs::kDense;
      break;
    case RouterPolicy::kAuction:
      spec.top_k = 1;
      break;
    case RouterPolicy::kFittedBias:
      r.function = Pick(rng, ScoreFunction::kSigmoid, ScoreFunction::kSoftmax);
      break;
    default:
      break;
  }
  r.key = spec.policy == RouterPolicy::kSequenceTopK ? ScoreKey::kLogits : r.key;
}

}  // namespace

RoutingSpec OrdinarySpec(RouterPolicy policy, uint64_t seed) {
  std::mt19937_64 rng(seed * 6364136223846793005ull + static_cast<uint64_t>(policy));
  RoutingSpec spec;
  spec.policy = policy;
  spec.seed = seed;
  spec.sequences = Pick(rng, 2, 4, 8);
  spec.length = Pick(rng, 32, 64, 128);
  spec.experts = Pick(rng, 8, 16, 32);
  spec.top_k = Pick(rng, 1, 2, 4);
  spec.capacity_factor = Pick(rng, 0.5, 0.75, 1.0, 1.25);
  spec.chunks = Pick(rng, 2, 3, 4);
  spec.dtype = Pick(rng, DType::kF32, DType::kF32, DType::kBF16, DType::kF16);
  spec.shape = Pick(rng, ScoreShape::kNormal, ScoreShape::kHeavy, ScoreShape::kCorrelated,
                    ScoreShape::kSkewed, ScoreShape::kBimodal);
  spec.seq_major = Pick(rng, true, false);
  spec.shuffle_rows = Pick(rng, false, false, true);
  spec.packed = Pick(rng, false, false, true);
  spec.padding_share = Pick(rng, 0.0, 0.0, 0.25);
  spec.router.padding_competes = Pick(rng, false, true);
  spec.softmax = Pick(rng, true, false);
  spec.recorded = Pick(rng, Recorded::kIndicesAndMask, Recorded::kIndicesAndMap, Recorded::kMapOnly,
                       Recorded::kIndicesMaskAndMap);
  spec.probs = Pick(rng, RecordedProbs::kNone, RecordedProbs::kDense, RecordedProbs::kChosen);
  spec.router.combine =
      Pick(rng, ScoreKey::kSoftmax, ScoreKey::kSoftmaxChosen, ScoreKey::kSigmoidShare);
  Fit(spec, rng);
  return spec;
}

RoutingSpec RandomSpec(RouterPolicy policy, uint64_t seed) {
  std::mt19937_64 rng(seed * 7919 + static_cast<uint64_t>(policy));
  RoutingSpec spec;
  spec.policy = policy;
  spec.seed = seed;
  spec.sequences = Pick(rng, 1, 2, 3, 8);
  spec.length = Pick(rng, 1, 7, 31, 64, 129);
  spec.experts = Pick(rng, 1, 2, 8, 13, 64);
  spec.top_k = std::min(spec.experts, Pick(rng, 1, 2, 3, 8));
  spec.capacity_factor = Pick(rng, 0.5, 1.0, 1.25, 4.0);
  spec.dtype = Pick(rng, DType::kF32, DType::kBF16, DType::kF16, DType::kF64);
  spec.quantum = Pick(rng, 0.0, 0.0, 0.0, 0.25, 1.0);
  spec.pool =
      Pick(rng, PoolUnit::kMicrobatch, PoolUnit::kSequence, PoolUnit::kChunk, PoolUnit::kPack);
  spec.chunks = Pick(rng, 2, 3, 4);
  spec.record_pool_id = Pick(rng, true, true, false);
  spec.pool_metadata = Pick(rng, true, false);
  spec.declare_capacity = Pick(rng, true, false);
  spec.seq_major = Pick(rng, true, false);
  spec.shuffle_rows = Pick(rng, false, false, true);
  spec.padding_share = Pick(rng, 0.0, 0.0, 0.25);
  spec.packed = Pick(rng, false, true);
  spec.softmax = Pick(rng, true, false);
  spec.recorded = Pick(rng, Recorded::kIndicesAndMask, Recorded::kIndicesAndMap, Recorded::kMapOnly,
                       Recorded::kMaskOnly, Recorded::kIndicesMaskAndMap);
  spec.probs = Pick(rng, RecordedProbs::kNone, RecordedProbs::kDense, RecordedProbs::kChosen);
  spec.shape = Pick(rng, ScoreShape::kNormal, ScoreShape::kNormal, ScoreShape::kHeavy,
                    ScoreShape::kCorrelated, ScoreShape::kSkewed, ScoreShape::kBimodal);
  spec.repeat = spec.sequences == 8 ? Pick(rng, 1, 1, 2) : 1;
  spec.router.padding_competes = Pick(rng, false, false, true);
  spec.router.short_chunk_first = Pick(rng, false, true);
  spec.router.priority_sum = Pick(rng, false, true);
  spec.router.tie_rule = Pick(rng, TieRule::kLastFirst, TieRule::kStrided, TieRule::kPartitioned);
  spec.router.key = Pick(rng, ScoreKey::kLogits, ScoreKey::kSoftmax, ScoreKey::kSoftmaxChosen,
                         ScoreKey::kSigmoidShare, ScoreKey::kSqrtSoftplusShare);
  spec.router.combine = spec.router.key;
  spec.bias_captured =
      Pick(rng, v1::RoutingConfig::BIAS_CAPTURED_BEFORE, v1::RoutingConfig::BIAS_CAPTURED_ABSENT);
  spec.record_bias = Pick(rng, true, true, false);
  spec.declare_randomness = Pick(rng, true, false);
  Fit(spec, rng);
  return spec;
}

}  // namespace plumbline::rules::testing
