// The recording of a call by the probe of a trainer, with random fields, precision and row order.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/rules/attack/lab.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::attack {
namespace {

using Config = v1::RoutingConfig;

enum : uint64_t { kForm = 1u << 22, kDType, kPool, kCapacity, kPolicy, kProbs, kShuffle };

template <typename T>
std::string BytesOf(const std::vector<double>& values) {
  std::string bytes;
  for (double x : values) {
    const auto value = static_cast<T>(x);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  return bytes;
}

v1::Tensor TensorOf(const std::vector<double>& values, DType dtype,
                    const std::vector<int64_t>& shape) {
  if (IsFloating(dtype)) return testing::TensorOf(values, dtype, shape);
  v1::Tensor tensor;
  tensor.set_dtype(static_cast<v1::DType>(dtype));
  for (int64_t extent : shape) tensor.add_shape(extent);
  tensor.set_data(dtype == DType::kI64   ? BytesOf<int64_t>(values)
                  : dtype == DType::kI32 ? BytesOf<int32_t>(values)
                                         : BytesOf<uint8_t>(values));
  return tensor;
}

class Recording {
 public:
  Recording(const Lab& lab, const Rows& rows, const Call& call, const Recorder& recorder)
      : lab_(lab), rows_(rows), call_(call), recorder_(recorder), order_(rows.symbol.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (Pick(kShuffle, 4) != 0) return;
    for (size_t i = order_.size(); i > 1; --i)
      std::swap(order_[i - 1],
                order_[static_cast<size_t>(lab.Uniform(kShuffle, i) * static_cast<double>(i))]);
  }

  v1::Evidence Evidence() const {
    v1::Evidence evidence;
    evidence.mutable_site()->set_layer("layers.0");
    evidence.mutable_site()->set_op("routing");
    evidence.set_sample_size(order_.size());
    v1::Routing& routing = *evidence.mutable_routing();
    Report(*routing.mutable_config());
    Put(*routing.mutable_sample());
    return evidence;
  }

 private:
  int Pick(uint64_t what, int n) const { return static_cast<int>(lab_.Uniform(what) * n); }
  bool mapped() const { return call_.index.empty() || recorder_.whole || Pick(kForm, 4) != 0; }
  bool indexed() const { return !call_.index.empty() && (recorder_.whole || Pick(kForm, 4) != 1); }

  template <typename T>
  std::vector<double> Gather(const std::vector<T>& values, size_t columns) const {
    std::vector<double> out;
    for (size_t row : order_) {
      for (size_t i = 0; i < columns; ++i)
        out.push_back(static_cast<double>(values[row * columns + i]));
    }
    return out;
  }

  int64_t MostHeld() const {
    std::vector<int64_t> held(static_cast<size_t>(rows_.experts), 0);
    for (size_t i = 0; i < call_.map.size(); ++i) held[i % held.size()] += call_.map[i];
    return std::max<int64_t>(1, *std::max_element(held.begin(), held.end()));
  }

  void Declare(Config& config, int64_t capacity) const {
    config.set_capacity_kind(Config::CAPACITY_DECLARED);
    config.set_capacity(static_cast<uint64_t>(capacity));
  }

  void DescribeCapacity(Config& config) const {
    if (recorder_.misdeclare) {
      const int64_t even = std::max<int64_t>(1, int64_t{rows_.count} * call_.k / rows_.experts);
      return Declare(config, Pick(kCapacity, 2) == 0 ? even : MostHeld());
    }
    const int how = recorder_.facts ? 0 : Pick(kCapacity, 3);
    if (how == 0) {
      if (call_.capacity > 0) return Declare(config, call_.capacity);
      config.set_capacity_kind(Config::CAPACITY_NONE);
    } else if (how == 1) {
      Declare(config, MostHeld());
      config.set_capacity_source(Config::CAPACITY_SOURCE_INFERRED);
    }
  }

  void Report(Config& config) const {
    config.set_top_k(static_cast<uint32_t>(call_.k));
    config.set_experts(static_cast<uint32_t>(rows_.experts));
    config.set_score_function(call_.function);
    config.set_randomness(call_.randomness);
    config.set_groups(static_cast<uint32_t>(call_.groups));
    config.set_top_groups(static_cast<uint32_t>(call_.top_groups));
    if (call_.groups > 0)
      config.set_group_score(call_.group_sum2 ? Config::GROUP_SCORE_SUM2 : Config::GROUP_SCORE_MAX);
    if (!call_.bias.empty()) config.set_bias_captured(Config::BIAS_CAPTURED_BEFORE);
    DescribeCapacity(config);
    if (!recorder_.facts && !pool_recorded() && call_.pool.empty() && Pick(kPool, 3) == 1)
      config.set_pool(Config::POOL_MICROBATCH);
    static const char* const kNames[] = {"token-choice", "fifo-capacity", "score-capacity",
                                         "expert-choice", "random-capacity"};
    if (recorder_.misdeclare && Pick(kPolicy, 2) == 0) {
      config.set_policy(kNames[Pick(kPolicy + 100, 5)]);
    } else if (recorder_.facts || Pick(kPolicy, 2) == 0) {
      config.set_policy(call_.policy);
    }
  }

  bool pool_recorded() const { return recorder_.facts || Pick(kPool, 3) == 0; }

  void Put(v1::RoutingSample& sample) const {
    const auto T = static_cast<int64_t>(order_.size());
    const auto E = static_cast<int64_t>(rows_.experts), k = static_cast<int64_t>(call_.k);
    const auto columns = static_cast<size_t>(rows_.experts);
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kBF16,
                                       DType::kF16};
    sample.set_scores_are_logits(call_.logits);
    *sample.mutable_scores() =
        TensorOf(Gather(call_.scores, columns),
                 recorder_.facts ? DType::kF32 : kTypes[Pick(kDType, 5)], {T, E});
    *sample.mutable_sequence_id() = TensorOf(Gather(rows_.sequence, 1), DType::kI64, {T});
    *sample.mutable_position() = TensorOf(Gather(rows_.position, 1), DType::kI32, {T});
    if (std::count(rows_.padding.begin(), rows_.padding.end(), 1) > 0)
      *sample.mutable_padding_mask() = TensorOf(Gather(rows_.padding, 1), DType::kU8, {T});
    if (indexed()) {
      *sample.mutable_topk_indices() =
          TensorOf(Gather(call_.index, static_cast<size_t>(k)), DType::kI32, {T, k});
      *sample.mutable_keep_mask() =
          TensorOf(Gather(call_.keep, static_cast<size_t>(k)), DType::kU8, {T, k});
    }
    if (mapped())
      *sample.mutable_routing_map() = TensorOf(Gather(call_.map, columns), DType::kU8, {T, E});
    if (!call_.bias.empty()) *sample.mutable_expert_bias() = TensorOf(call_.bias, DType::kF32, {E});
    if (pool_recorded()) {
      std::vector<int> pool = call_.pool;
      if (pool.empty()) pool.assign(order_.size(), 0);
      *sample.mutable_pool_id() = TensorOf(Gather(pool, 1), DType::kI32, {T});
    }
    if (!recorder_.facts && Pick(kProbs, 3) == 0)
      *sample.mutable_probs() = TensorOf(Weights(), DType::kF32, {T, E});
  }

  // Returns the softmax over all experts, restricted to the experts that compute the token.
  std::vector<double> Weights() const {
    const auto experts = static_cast<size_t>(rows_.experts);
    std::vector<double> out;
    for (size_t row : order_) {
      const double* x = &call_.scores[row * experts];
      const double most = *std::max_element(x, x + experts);
      double sum = 0;
      for (size_t e = 0; e < experts; ++e) sum += call_.logits ? std::exp(x[e] - most) : 1;
      for (size_t e = 0; e < experts; ++e) {
        const double share = call_.logits ? std::exp(x[e] - most) / sum : x[e];
        out.push_back(call_.map[row * experts + e] ? share : 0);
      }
    }
    return out;
  }

  const Lab& lab_;
  const Rows& rows_;
  const Call& call_;
  const Recorder& recorder_;
  std::vector<size_t> order_;
};

}  // namespace

v1::Batch Record(const Lab& lab, const Rows& rows, const Call& call, const Recorder& recorder) {
  v1::Batch batch;
  testing::AddTrainer(0, 1, &batch);
  *batch.add_evidence() = Recording(lab, rows, call, recorder).Evidence();
  return batch;
}

}  // namespace plumbline::rules::attack
