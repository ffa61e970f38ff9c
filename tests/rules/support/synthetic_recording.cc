// Records a synthetic router call as a trainer would.
#include <algorithm>
#include <numeric>

#include "base/half.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void AppendScore(std::string& bytes, double x, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Append(bytes, FloatToF16(static_cast<float>(x)));
    case DType::kBF16:
      return Append(bytes, FloatToBF16(static_cast<float>(x)));
    case DType::kF64:
      return Append(bytes, x);
    default:
      return Append(bytes, static_cast<float>(x));
  }
}

v1::Tensor* Shape(v1::Tensor* tensor, DType dtype, std::initializer_list<int64_t> shape) {
  tensor->set_dtype(static_cast<v1::DType>(dtype));
  for (int64_t extent : shape) tensor->add_shape(extent);
  return tensor;
}

bool CutsBySequence(RouterPolicy policy) {
  return policy == RouterPolicy::kFifoSequence || policy == RouterPolicy::kSequenceTopK;
}

const char* Randomness(RouterPolicy policy) {
  switch (policy) {
    case RouterPolicy::kNoisyTopK:
      return "jitter";
    case RouterPolicy::kSampledSecond:
    case RouterPolicy::kRandomSecond:
      return "second-expert";
    case RouterPolicy::kRandomDrop:
      return "drop";
    default:
      return "";
  }
}

// Returns the policy's name in the configuration of a router that refuses. For others, returns
// none.
const char* StatedPolicy(RouterPolicy policy) {
  switch (policy) {
    case RouterPolicy::kScore:
    case RouterPolicy::kScoreRankMajor:
    case RouterPolicy::kPriority:
    case RouterPolicy::kPriorityRankMajor:
      return "score-capacity";
    case RouterPolicy::kRankMajor:
      return "rank-major-capacity";
    case RouterPolicy::kRandomSelection:
      return "random-capacity";
    case RouterPolicy::kTieOrder:
      return "tie-order-capacity";
    case RouterPolicy::kExpertChoice:
      return "expert-choice";
    case RouterPolicy::kSequenceTopK:
      return "sequence-top-k";
    case RouterPolicy::kFifo:
    case RouterPolicy::kZigzagFifo:
    case RouterPolicy::kReverseFifo:
    case RouterPolicy::kAtomicsRace:
      return "fifo-capacity";
    default:
      return "";
  }
}

}  // namespace

bool SyntheticRouting::has_map() const {
  return result_.indices.empty() || spec_.pad_map || spec_.recorded == Recorded::kIndicesAndMap ||
         spec_.recorded == Recorded::kMapOnly || spec_.recorded == Recorded::kIndicesMaskAndMap;
}
bool SyntheticRouting::has_indices() const {
  return !result_.indices.empty() && spec_.recorded != Recorded::kMapOnly &&
         spec_.recorded != Recorded::kMaskOnly;
}
bool SyntheticRouting::has_mask() const {
  return !result_.indices.empty() &&
         (spec_.recorded == Recorded::kIndicesAndMask || spec_.recorded == Recorded::kMaskOnly ||
          spec_.recorded == Recorded::kIndicesMaskAndMap);
}

int64_t SyntheticRouting::Declared() const {
  if (spec_.declare_as_held) return MostHeld();
  if (spec_.declared_capacity > 0) return spec_.declared_capacity;
  switch (spec_.policy) {
    case RouterPolicy::kFifoExpertCapacity:
    case RouterPolicy::kWindowBudget:
    case RouterPolicy::kSinkhorn:
    case RouterPolicy::kAuction:
    case RouterPolicy::kFittedBias:
    case RouterPolicy::kStoredTable:
      return 0;
    case RouterPolicy::kFifoRankCapacity:
      return std::accumulate(parameters_.rank_capacity.begin(), parameters_.rank_capacity.end(),
                             int64_t{0});
    default: {
      const bool dropless = spec_.policy < RouterPolicy::kFifo;
      return dropless ? 0 : std::max<int64_t>(1, parameters_.capacity + spec_.declared_offset);
    }
  }
}

void SyntheticRouting::FillConfig(v1::RoutingConfig& config) const {
  const bool biased = spec_.policy == RouterPolicy::kStoredBias;
  config.set_top_k(static_cast<uint32_t>(spec_.top_k));
  config.set_experts(static_cast<uint32_t>(spec_.experts));
  config.set_score_function(spec_.softmax ? v1::SCORE_SOFTMAX : v1::SCORE_IDENTITY);
  if (biased || spec_.policy == RouterPolicy::kGroupLimited)
    config.set_score_function(static_cast<v1::ScoreFunction>(parameters_.function));
  config.set_flatten(spec_.seq_major ? v1::RoutingConfig::FLATTEN_SEQ_MAJOR
                                     : v1::RoutingConfig::FLATTEN_BATCH_MAJOR);
  if (spec_.declare_capacity && Declared() > 0) {
    config.set_capacity_kind(v1::RoutingConfig::CAPACITY_DECLARED);
    config.set_capacity(static_cast<uint64_t>(Declared()));
  }
  config.set_policy(StatedPolicy(spec_.policy));
  const bool own_unit = CutsBySequence(spec_.policy) || spec_.pool == PoolUnit::kSequence;
  if (spec_.pool_metadata && own_unit) config.set_pool(v1::RoutingConfig::POOL_SEQUENCE);
  if (spec_.pool_metadata && !own_unit && spec_.pool == PoolUnit::kMicrobatch)
    config.set_pool(v1::RoutingConfig::POOL_MICROBATCH);
  if (spec_.declare_randomness) config.set_randomness(Randomness(spec_.policy));
  if (spec_.policy == RouterPolicy::kGroupLimited && spec_.record_groups) {
    config.set_groups(static_cast<uint32_t>(parameters_.groups));
    config.set_top_groups(static_cast<uint32_t>(parameters_.top_groups));
    config.set_group_score(parameters_.group_sum2 ? v1::RoutingConfig::GROUP_SCORE_SUM2
                                                  : v1::RoutingConfig::GROUP_SCORE_MAX);
  }
  if (biased && spec_.record_bias) config.set_bias_captured(spec_.bias_captured);
}

// Returns the recorded map. If the layout needs full rows of tokens, it is filled up to capacity
// with the first rows of the pool.
std::vector<uint8_t> SyntheticRouting::RecordedMap() const {
  std::vector<uint8_t> map = result_.map;
  if (!spec_.pad_map) return map;
  const auto E = static_cast<size_t>(spec_.experts);
  const int pools = *std::max_element(result_.pool.begin(), result_.pool.end()) + 1;
  std::vector<int64_t> held(static_cast<size_t>(pools) * E, 0);
  const auto cell = [&](size_t at) {
    return static_cast<size_t>(result_.pool[at / E]) * E + at % E;
  };
  for (size_t at = 0; at < map.size(); ++at) held[cell(at)] += map[at];
  for (size_t at = 0; at < map.size(); ++at) {
    if (map[at] || held[cell(at)] >= parameters_.capacity) continue;
    map[at] = 1;
    ++held[cell(at)];
  }
  return map;
}

void SyntheticRouting::FillRow(v1::RoutingSample& sample, size_t row,
                               const std::vector<uint8_t>& map) const {
  const auto E = static_cast<size_t>(spec_.experts), k = static_cast<size_t>(spec_.top_k);
  for (size_t e = 0; e < E; ++e)
    AppendScore(*sample.mutable_scores()->mutable_data(), batch_.logits[row * E + e], spec_.dtype);
  Append(*sample.mutable_sequence_id()->mutable_data(), batch_.sequence[row]);
  Append(*sample.mutable_position()->mutable_data(), static_cast<int32_t>(batch_.position[row]));
  for (size_t j = 0; has_indices() && j < k; ++j)
    Append(*sample.mutable_topk_indices()->mutable_data(),
           static_cast<int64_t>(result_.indices[row * k + j]));
  for (size_t j = 0; has_mask() && j < k; ++j)
    Append(*sample.mutable_keep_mask()->mutable_data(), result_.keep[row * k + j]);
  for (size_t e = 0; has_map() && e < E; ++e)
    Append(*sample.mutable_routing_map()->mutable_data(), map[row * E + e]);
  std::string& probs = *sample.mutable_probs()->mutable_data();
  if (spec_.pad_map || spec_.probs == RecordedProbs::kDense) {
    std::vector<uint8_t> chosen(result_.map.begin() + static_cast<std::ptrdiff_t>(row * E),
                                result_.map.begin() + static_cast<std::ptrdiff_t>((row + 1) * E));
    // A padded map is masked by what was kept; otherwise the probabilities precede the drops.
    for (size_t j = 0; !spec_.pad_map && !result_.indices.empty() && j < k; ++j)
      chosen[static_cast<size_t>(result_.indices[row * k + j])] = 1;
    for (size_t e = 0; e < E; ++e)
      Append(probs, chosen[e] ? static_cast<float>(result_.probs[row * E + e]) : 0.0F);
  } else if (spec_.probs == RecordedProbs::kChosen && has_indices()) {
    for (size_t j = 0; j < k; ++j) {
      const auto e = static_cast<size_t>(result_.indices[row * k + j]);
      Append(probs, static_cast<float>(result_.probs[row * E + e]));
    }
  }
  const std::vector<int32_t>& pool = spec_.whole_pool ? batch_.pool : result_.pool;
  if (spec_.record_pool_id) Append(*sample.mutable_pool_id()->mutable_data(), pool[row]);
  if (spec_.padding_share > 0)
    Append(*sample.mutable_padding_mask()->mutable_data(), batch_.padding[row]);
}

v1::Evidence SyntheticRouting::Evidence() const {
  const auto T = static_cast<size_t>(batch_.tokens);
  std::vector<size_t> order(T);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 rng(spec_.seed ^ 0x5bd1e995);
  if (spec_.shuffle_rows) std::shuffle(order.begin(), order.end(), rng);

  v1::Evidence evidence;
  evidence.mutable_site()->set_layer("layers.0");
  evidence.mutable_site()->set_op("routing");
  evidence.set_sample_size(T);
  v1::Routing& routing = *evidence.mutable_routing();
  FillConfig(*routing.mutable_config());
  v1::RoutingSample& sample = *routing.mutable_sample();
  sample.set_scores_are_logits(true);
  const std::vector<uint8_t> map = RecordedMap();
  for (size_t row : order) FillRow(sample, row, map);

  const auto rows = static_cast<int64_t>(T), experts = static_cast<int64_t>(spec_.experts),
             choices = static_cast<int64_t>(spec_.top_k);
  Shape(sample.mutable_scores(), spec_.dtype, {rows, experts});
  Shape(sample.mutable_sequence_id(), DType::kI64, {rows});
  Shape(sample.mutable_position(), DType::kI32, {rows});
  if (has_indices()) Shape(sample.mutable_topk_indices(), DType::kI64, {rows, choices});
  if (has_mask()) Shape(sample.mutable_keep_mask(), DType::kBool, {rows, choices});
  if (has_map()) Shape(sample.mutable_routing_map(), DType::kU8, {rows, experts});
  if (sample.probs().data().empty()) {
    sample.clear_probs();
  } else {
    const bool dense = spec_.pad_map || spec_.probs == RecordedProbs::kDense;
    Shape(sample.mutable_probs(), DType::kF32, {rows, dense ? experts : choices});
  }
  if (spec_.record_pool_id) Shape(sample.mutable_pool_id(), DType::kI32, {rows});
  if (spec_.padding_share > 0) Shape(sample.mutable_padding_mask(), DType::kU8, {rows});
  if (spec_.policy == RouterPolicy::kStoredBias && spec_.record_bias) {
    for (double b : parameters_.bias)
      Append(*sample.mutable_expert_bias()->mutable_data(), static_cast<float>(b));
    Shape(sample.mutable_expert_bias(), DType::kF32, {experts});
  }
  return evidence;
}

v1::Batch SyntheticRouting::Batch(uint32_t rank, uint32_t world, int64_t step) const {
  v1::Batch batch = test::BatchOf(test::SourceOf("synthetic", rank, world));
  batch.set_stream_id(rank + 1);
  batch.set_sequence(1);
  *batch.add_evidence() = Evidence();
  batch.mutable_evidence(0)->set_step(step);
  return batch;
}

}  // namespace plumbline::rules::testing
