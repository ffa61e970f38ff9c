#include "tests/rules/support/routing_pair.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

template <typename T>
void Fill(v1::Tensor* t, v1::DType dtype, std::vector<int64_t> shape, const std::vector<T>& data) {
  t->set_dtype(dtype);
  for (int64_t n : shape) t->add_shape(n);
  t->mutable_data()->assign(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T));
}

class Pair {
 public:
  explicit Pair(const RoutingPairSpec& spec)
      : spec_(spec), draw_(spec.seed), rows_(spec.sequences * spec.length) {}

  std::vector<v1::Batch> Run() {
    std::vector<v1::Batch> batches = {Empty(false), Empty(true)};
    for (int layer = 0; layer < spec_.layers; ++layer) {
      const std::vector<float> truth = Logits();
      std::vector<float> seen = spec_.other_tokens ? Logits() : truth;
      AddNoise(seen);
      if (layer >= spec_.flip_layer) Flip(seen);
      Poison(seen);
      Call(layer, truth, false, &batches[0]);
      Call(layer, seen, true, &batches[1]);
    }
    return batches;
  }

 private:
  size_t Cells() const { return static_cast<size_t>(rows_) * static_cast<size_t>(spec_.experts); }

  double Score() {
    if (spec_.law == "uniform") return draw_.Uniform();
    const double x = draw_.Normal();
    if (spec_.law == "cauchy") return x / draw_.Normal();
    if (spec_.law == "lognormal") return std::exp(x);
    if (spec_.law == "discrete") return std::nearbyint(1.5 * x);
    return spec_.law == "relu" ? std::max(0.0, x) : x;
  }

  std::vector<float> Logits() {
    std::vector<float> x(Cells());
    for (float& v : x) v = static_cast<float>(Score());
    return x;
  }

  // Returns the noise of one token's logits.
  double NoiseOfToken() {
    if (spec_.unequal == "outliers")
      return spec_.noise * (draw_.Uniform() < 0.05 ? spec_.unequal_by : 1);
    if (spec_.unequal == "lognormal")
      return spec_.noise * std::exp(std::log(spec_.unequal_by) * draw_.Normal());
    if (spec_.unequal != "int8") return spec_.noise;
    // The scale is 1/127 of the largest channel: 4 deviations of the others, or the outlier.
    const double largest = draw_.Uniform() < 0.1 ? spec_.unequal_by : 4;
    return largest / 127 / std::sqrt(12.0);
  }

  void AddNoise(std::vector<float>& x) {
    for (int row = 0; row < rows_; ++row) {
      const double noise = NoiseOfToken();
      for (int e = 0; e < spec_.experts; ++e) {
        x[static_cast<size_t>(row * spec_.experts + e)] += static_cast<float>(
            noise * draw_.Normal() + (e < spec_.biased_experts ? spec_.bias : 0));
      }
    }
  }

  void Flip(std::vector<float>& x) {
    for (int row = 0; row < rows_; ++row) {
      if (!(draw_.Uniform() < spec_.flip_share)) continue;
      for (int e = 0; e < spec_.experts; ++e)
        x[static_cast<size_t>(row * spec_.experts + e)] +=
            static_cast<float>(spec_.flip_size * draw_.Normal());
    }
  }

  void Poison(std::vector<float>& x) const {
    if (spec_.poison.empty()) return;
    for (int row = 0; row < rows_; row += 10)
      x[static_cast<size_t>(row * spec_.experts)] = std::numeric_limits<float>::quiet_NaN();
  }

  v1::Batch Empty(bool infer) const {
    v1::Batch batch;
    v1::Source& source = *batch.add_sources();
    source.set_run("run");
    source.set_role(infer && spec_.rollout_role ? v1::ROLE_ROLLOUT : v1::ROLE_TRAINER);
    source.set_world_size(1);
    if (spec_.live) source.set_pid(infer ? 8 : 7);
    return batch;
  }

  std::vector<int64_t> Best(const std::vector<float>& x, int row) const {
    std::vector<int64_t> order(static_cast<size_t>(spec_.experts));
    std::iota(order.begin(), order.end(), 0);
    const float* at = x.data() + static_cast<std::ptrdiff_t>(row) * spec_.experts;
    std::stable_sort(order.begin(), order.end(),
                     [at](int64_t a, int64_t b) { return at[a] > at[b]; });
    order.resize(static_cast<size_t>(spec_.top_k));
    return order;
  }

  bool Recorded(int row) const {
    const int sequence = row / spec_.length;
    const int position = row % spec_.length;
    if (spec_.last_missing && position == spec_.length - 1) return false;
    return !(sequence == 3 && position >= spec_.length - spec_.cut);
  }

  void Call(int layer, const std::vector<float>& x, bool infer, v1::Batch* batch) {
    std::vector<int> order;
    for (int row = 0; row < rows_; ++row) {
      if (!infer || Recorded(row)) order.push_back(row);
    }
    if (infer && spec_.shuffled) std::shuffle(order.begin(), order.end(), draw_.generator());
    std::vector<float> scores, gates;
    std::vector<int64_t> chosen, sequence;
    std::vector<int32_t> position;
    for (int row : order) {
      const float* at = x.data() + static_cast<std::ptrdiff_t>(row) * spec_.experts;
      scores.insert(scores.end(), at, at + spec_.experts);
      sequence.push_back(100 + row / spec_.length);
      position.push_back(row % spec_.length);
      const bool last = row % spec_.length == spec_.length - 1;
      const bool none = infer && ((spec_.sentinel_every > 0 && row % spec_.sentinel_every == 0) ||
                                  (spec_.last_sentinel && last));
      const bool zero = infer && spec_.zero_gates_every > 0 && row % spec_.zero_gates_every == 0;
      for (int64_t e : Best(x, row)) {
        chosen.push_back(none ? -1 : e);
        gates.push_back(zero ? 0 : 1 / (1 + std::exp(-at[e])));
      }
    }
    v1::Evidence& evidence = *batch->add_evidence();
    evidence.mutable_site()->set_layer("layers." + std::to_string(layer));
    evidence.mutable_site()->set_op("routing");
    evidence.set_step(infer ? spec_.infer_step : 0);
    evidence.set_call(infer && !spec_.rollout_role ? 1 : 0);
    v1::Routing& routing = *evidence.mutable_routing();
    routing.mutable_config()->set_top_k(static_cast<uint32_t>(spec_.top_k));
    routing.mutable_config()->set_experts(static_cast<uint32_t>(spec_.experts));
    routing.mutable_config()->set_mode(infer ? "eval" : "train");
    v1::RoutingSample& sample = *routing.mutable_sample();
    sample.set_scores_are_logits(true);
    const auto n = static_cast<int64_t>(order.size());
    if (!infer || spec_.scores)
      Fill(sample.mutable_scores(), v1::DTYPE_F32, {n, spec_.experts}, scores);
    Fill(sample.mutable_topk_indices(), v1::DTYPE_I64, {n, spec_.top_k}, chosen);
    if (spec_.gates || spec_.zero_gates_every > 0)
      Fill(sample.mutable_probs(), v1::DTYPE_F32, {n, spec_.top_k}, gates);
    if (!infer || !spec_.drop_ids) Fill(sample.mutable_sequence_id(), v1::DTYPE_I64, {n}, sequence);
    Fill(sample.mutable_position(), v1::DTYPE_I32, {n}, position);
  }

  const RoutingPairSpec& spec_;
  Draw draw_;
  int rows_;
};

}  // namespace

void Set(RoutingPairSpec& spec, const std::string& key, const std::string& value) {
  if (key == "infer_step") {
    spec.infer_step = std::stoll(value);
    return;
  }
  if (key == "seed") {
    spec.seed = std::stoull(value);
    return;
  }
  SetField({.whole = {{"sequences", &spec.sequences},
                      {"length", &spec.length},
                      {"experts", &spec.experts},
                      {"top_k", &spec.top_k},
                      {"layers", &spec.layers},
                      {"flip_layer", &spec.flip_layer},
                      {"sentinel_every", &spec.sentinel_every},
                      {"zero_gates_every", &spec.zero_gates_every},
                      {"cut", &spec.cut},
                      {"biased_experts", &spec.biased_experts}},
            .number = {{"noise", &spec.noise},
                       {"flip_share", &spec.flip_share},
                       {"unequal_by", &spec.unequal_by},
                       {"bias", &spec.bias},
                       {"flip_size", &spec.flip_size}},
            .flag = {{"last_missing", &spec.last_missing},
                     {"last_sentinel", &spec.last_sentinel},
                     {"gates", &spec.gates},
                     {"shuffled", &spec.shuffled},
                     {"other_tokens", &spec.other_tokens},
                     {"drop_ids", &spec.drop_ids},
                     {"scores", &spec.scores},
                     {"rollout_role", &spec.rollout_role},
                     {"live", &spec.live}},
            .text = {{"law", &spec.law}, {"unequal", &spec.unequal}, {"poison", &spec.poison}}},
           key, value);
}

std::vector<v1::Batch> RoutingPair(const RoutingPairSpec& spec) { return Pair(spec).Run(); }

}  // namespace plumbline::rules::testing
