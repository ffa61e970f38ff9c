#include "tests/rules/support/synthetic_routing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"

namespace plumbline::rules::testing {
namespace {

double Round(double x, DType dtype) {
  const auto f = static_cast<float>(x);
  switch (dtype) {
    case DType::kF16:
      return F16ToFloat(FloatToF16(f));
    case DType::kBF16:
      return BF16ToFloat(FloatToBF16(f));
    case DType::kF64:
      return x;
    default:
      return f;
  }
}

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

}  // namespace

SyntheticRouting::SyntheticRouting(const RoutingSpec& spec) : spec_(spec) {
  std::mt19937_64 rng(spec.seed);
  std::normal_distribution<double> normal;
  std::vector<int> lengths(static_cast<size_t>(spec.sequences), spec.length);
  for (int& length : lengths) {
    if (spec.packed) length = 1 + static_cast<int>(rng() % static_cast<uint64_t>(spec.length));
  }
  // Rows in queue order, as (sequence, position).
  std::vector<std::pair<int, int>> rows;
  for (int outer = 0; outer < (spec.seq_major ? spec.length : spec.sequences); ++outer) {
    for (int inner = 0; inner < (spec.seq_major ? spec.sequences : spec.length); ++inner) {
      const int b = spec.seq_major ? inner : outer, s = spec.seq_major ? outer : inner;
      if (s < lengths[static_cast<size_t>(b)]) rows.push_back({b, s});
    }
  }
  const int T = static_cast<int>(rows.size());
  batch_.tokens = T;
  batch_.experts = spec.experts;
  batch_.top_k = spec.top_k;
  batch_.pool.assign(static_cast<size_t>(T), 0);
  batch_.padding.assign(static_cast<size_t>(T), 0);
  std::vector<double> popularity(static_cast<size_t>(spec.experts));
  for (double& p : popularity) p = 0.5 * normal(rng);
  for (int row = 0; row < T; ++row) {
    const auto [b, s] = rows[static_cast<size_t>(row)];
    sequence_.push_back(100 + b);
    position_.push_back(s);
    if (s >= spec.length * (1 - spec.padding_share) && b % 2 == 1)
      batch_.padding[static_cast<size_t>(row)] = 1;
    if (spec.pool == PoolUnit::kSequence) batch_.pool[static_cast<size_t>(row)] = b;
    if (spec.pool == PoolUnit::kChunk)
      batch_.pool[static_cast<size_t>(row)] = row / ((T + spec.chunks - 1) / spec.chunks);
    for (int e = 0; e < spec.experts; ++e) {
      double x = normal(rng) + popularity[static_cast<size_t>(e)];
      if (spec.quantum > 0) x = std::round(x / spec.quantum) * spec.quantum;
      batch_.logits.push_back(Round(x, spec.dtype));
    }
  }
  const int pools = *std::max_element(batch_.pool.begin(), batch_.pool.end()) + 1;
  const int pieces = spec.policy == RouterPolicy::kFifoChunks ? spec.chunks : 1;
  capacity_ = static_cast<int64_t>(
      std::ceil(spec.capacity_factor * spec.top_k * T / spec.experts / pools / pieces));
  capacity_ = std::max<int64_t>(1, capacity_);
  result_ = Route(batch_, spec.policy, capacity_, spec.chunks);
}

int64_t SyntheticRouting::dropped() const {
  int64_t dropped = 0;
  for (size_t i = 0; i < result_.keep.size(); ++i) {
    if (!batch_.padding[i / static_cast<size_t>(spec_.top_k)]) dropped += result_.keep[i] == 0;
  }
  return dropped;
}

// Who really competes: a chunk has a capacity of its own.
int32_t SyntheticRouting::TruePool(size_t row) const {
  if (spec_.policy != RouterPolicy::kFifoChunks) return batch_.pool[row];
  const int length = (batch_.tokens + spec_.chunks - 1) / spec_.chunks;
  return batch_.pool[row] * spec_.chunks + static_cast<int32_t>(row) / length;
}

v1::Evidence SyntheticRouting::Evidence() const {
  const auto T = static_cast<size_t>(batch_.tokens), E = static_cast<size_t>(spec_.experts),
             k = static_cast<size_t>(spec_.top_k);
  std::vector<size_t> order(T);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 rng(spec_.seed ^ 0x5bd1e995);
  if (spec_.shuffle_rows) std::shuffle(order.begin(), order.end(), rng);

  v1::Evidence evidence;
  evidence.mutable_site()->set_layer("layers.0");
  evidence.mutable_site()->set_op("routing");
  evidence.set_sample_size(T);
  v1::Routing& routing = *evidence.mutable_routing();
  v1::RoutingConfig& config = *routing.mutable_config();
  config.set_top_k(static_cast<uint32_t>(spec_.top_k));
  config.set_experts(static_cast<uint32_t>(spec_.experts));
  config.set_score_function(spec_.softmax ? v1::SCORE_SOFTMAX : v1::SCORE_IDENTITY);
  config.set_flatten(spec_.seq_major ? v1::RoutingConfig::FLATTEN_SEQ_MAJOR
                                     : v1::RoutingConfig::FLATTEN_BATCH_MAJOR);
  const bool has_capacity =
      spec_.policy != RouterPolicy::kTokenChoice && spec_.policy != RouterPolicy::kOwnThreshold;
  if (spec_.declare_capacity && has_capacity) {
    config.set_capacity_kind(v1::RoutingConfig::CAPACITY_DECLARED);
    config.set_capacity(static_cast<uint64_t>(capacity_));
  }
  if (spec_.pool_metadata && spec_.pool != PoolUnit::kChunk) {
    config.set_pool(spec_.pool == PoolUnit::kSequence ? v1::RoutingConfig::POOL_SEQUENCE
                                                      : v1::RoutingConfig::POOL_MICROBATCH);
  }
  v1::RoutingSample& sample = *routing.mutable_sample();
  sample.set_scores_are_logits(true);
  const auto rows = static_cast<int64_t>(T), experts = static_cast<int64_t>(E),
             choices = static_cast<int64_t>(k);
  auto* scores = Shape(sample.mutable_scores(), spec_.dtype, {rows, experts})->mutable_data();
  auto* sequence = Shape(sample.mutable_sequence_id(), DType::kI64, {rows})->mutable_data();
  auto* position = Shape(sample.mutable_position(), DType::kI32, {rows})->mutable_data();
  const bool columns = result_.indices.empty();
  const bool map = columns || spec_.recorded != Recorded::kIndicesAndMask;
  const bool indices = !columns && spec_.recorded != Recorded::kMapOnly;
  for (size_t row : order) {
    for (size_t e = 0; e < E; ++e) AppendScore(*scores, batch_.logits[row * E + e], spec_.dtype);
    Append(*sequence, sequence_[row]);
    Append(*position, static_cast<int32_t>(position_[row]));
    if (indices) {
      for (size_t j = 0; j < k; ++j)
        Append(*sample.mutable_topk_indices()->mutable_data(),
               static_cast<int64_t>(result_.indices[row * k + j]));
    }
    if (indices && !map) {
      for (size_t j = 0; j < k; ++j)
        Append(*sample.mutable_keep_mask()->mutable_data(), result_.keep[row * k + j]);
    }
    if (map) {
      for (size_t e = 0; e < E; ++e)
        Append(*sample.mutable_routing_map()->mutable_data(), result_.map[row * E + e]);
    }
    if (spec_.record_pool_id) Append(*sample.mutable_pool_id()->mutable_data(), TruePool(row));
    if (spec_.padding_share > 0)
      Append(*sample.mutable_padding_mask()->mutable_data(), batch_.padding[row]);
  }
  if (indices) Shape(sample.mutable_topk_indices(), DType::kI64, {rows, choices});
  if (indices && !map) Shape(sample.mutable_keep_mask(), DType::kBool, {rows, choices});
  if (map) Shape(sample.mutable_routing_map(), DType::kU8, {rows, experts});
  if (spec_.record_pool_id) Shape(sample.mutable_pool_id(), DType::kI32, {rows});
  if (spec_.padding_share > 0) Shape(sample.mutable_padding_mask(), DType::kU8, {rows});
  return evidence;
}

v1::Batch SyntheticRouting::Batch(uint32_t rank, uint32_t world, int64_t step) const {
  v1::Batch batch;
  batch.set_stream_id(rank + 1);
  batch.set_sequence(1);
  v1::Source& source = *batch.add_sources();
  source.set_run("synthetic");
  source.set_role(v1::ROLE_TRAINER);
  source.set_rank(rank);
  source.set_world_size(world);
  *batch.add_evidence() = Evidence();
  batch.mutable_evidence(0)->set_step(step);
  return batch;
}

std::vector<std::vector<uint8_t>> SyntheticRouting::Assignment(const RouterBatch& batch) const {
  const RouterResult result = Route(batch, spec_.policy, capacity_, spec_.chunks);
  std::vector<std::vector<uint8_t>> rows;
  const auto E = static_cast<size_t>(spec_.experts);
  for (size_t t = 0; t < static_cast<size_t>(batch.tokens); ++t) {
    rows.emplace_back(result.map.begin() + static_cast<std::ptrdiff_t>(t * E),
                      result.map.begin() + static_cast<std::ptrdiff_t>((t + 1) * E));
  }
  return rows;
}

bool SyntheticRouting::LeaksByIntervention(int trials) const {
  std::mt19937_64 rng(spec_.seed ^ 0x9e3779b97f4a7c15);
  std::normal_distribution<double> normal;
  const auto base = Assignment(batch_);
  const auto E = static_cast<size_t>(spec_.experts);
  for (int trial = 0; trial < trials; ++trial) {
    const auto target = static_cast<int64_t>(100 + rng() % static_cast<uint64_t>(spec_.sequences));
    const auto cut =
        static_cast<int64_t>(1 + rng() % static_cast<uint64_t>(std::max(1, spec_.length - 1)));
    RouterBatch changed = batch_;
    std::vector<size_t> prefix;
    for (size_t t = 0; t < sequence_.size(); ++t) {
      if (sequence_[t] == target && position_[t] < cut && !batch_.padding[t]) prefix.push_back(t);
    }
    if (prefix.empty()) continue;
    for (size_t t = 0; t < sequence_.size(); ++t) {
      if (sequence_[t] != target || position_[t] < cut || batch_.padding[t]) continue;
      const size_t copy = prefix[rng() % prefix.size()];
      for (size_t e = 0; e < E; ++e) {
        const double strong = 1.5 * batch_.logits[copy * E + e];
        changed.logits[t * E + e] = Round(trial % 2 == 0 ? strong : 2 * normal(rng), spec_.dtype);
      }
    }
    const auto other = Assignment(changed);
    for (size_t t : prefix) {
      if (other[t] != base[t]) return true;
    }
  }
  return false;
}

RoutingSpec RandomSpec(RouterPolicy policy, uint64_t seed) {
  std::mt19937_64 rng(seed * 7919 + static_cast<uint64_t>(policy));
  const auto pick = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> list{values...};
    return list[rng() % list.size()];
  };
  RoutingSpec spec;
  spec.policy = policy;
  spec.seed = seed;
  spec.sequences = pick(1, 2, 3, 8);
  spec.length = pick(1, 7, 31, 64, 129);
  spec.experts = pick(1, 2, 8, 13, 64);
  spec.top_k = std::min(spec.experts, pick(1, 2, 3, 8));
  spec.capacity_factor = pick(0.5, 1.0, 1.25, 4.0);
  spec.dtype = pick(DType::kF32, DType::kBF16, DType::kF16, DType::kF64);
  spec.quantum = pick(0.0, 0.0, 0.0, 0.25, 1.0);
  spec.pool = pick(PoolUnit::kMicrobatch, PoolUnit::kSequence, PoolUnit::kChunk);
  spec.chunks = pick(2, 3, 4);
  spec.record_pool_id = pick(true, true, false);
  spec.pool_metadata = pick(true, false);
  spec.declare_capacity = pick(true, false);
  spec.seq_major = pick(true, false);
  spec.shuffle_rows = pick(false, false, true);
  spec.padding_share = pick(0.0, 0.0, 0.25);
  spec.packed = pick(false, true);
  spec.softmax = pick(true, false);
  spec.recorded = pick(Recorded::kIndicesAndMask, Recorded::kIndicesAndMap, Recorded::kMapOnly);
  return spec;
}

}  // namespace plumbline::rules::testing
