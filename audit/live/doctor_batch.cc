#include "audit/live/doctor_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace plumbline::audit {
namespace {

constexpr int kTokens = 256;
// Sequences differ in capacity and in the demand for each expert, so no stored rule explains all
// sequences.
constexpr int kSequences = 4;
constexpr int kLength = kTokens / kSequences;
constexpr int kExperts = 6;
constexpr int kCapacity = 8;  // per sequence

// Returns a number in [0, 1), the same on every machine (splitmix64). More regular data would have
// a structure that a stored rule could match.
float Noise(uint32_t i) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<float>((x ^ (x >> 31)) >> 40) / 16777216.0f;
}

// Returns the expert that a token prefers: about three sixteenths of the tokens prefer each of five
// experts, and the remaining tokens prefer the last expert. Five experts are full.
int WantedExpert(int token) {
  constexpr uint32_t kOtherDraws = 1u << 20;
  const auto draw = static_cast<int>(16 * Noise(kOtherDraws + static_cast<uint32_t>(token)));
  return draw / 3;
}

template <typename T>
void Fill(v1::Tensor* tensor, v1::DType dtype, std::vector<int64_t> shape,
          const std::vector<T>& values) {
  tensor->set_dtype(dtype);
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  std::string data(values.size() * sizeof(T), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  tensor->set_data(std::move(data));
}

struct Router {
  std::vector<float> scores = std::vector<float>(size_t{kTokens} * kExperts);
  std::vector<int32_t> choice = std::vector<int32_t>(kTokens);
  std::vector<uint8_t> keep = std::vector<uint8_t>(kTokens, 1);
  std::vector<uint32_t> load = std::vector<uint32_t>(kExperts);
  std::vector<uint32_t> refused = std::vector<uint32_t>(kExperts);
};

Router LeakingRouter() {
  Router r;
  const auto at = [](int token, int expert) {
    return static_cast<size_t>(token) * kExperts + static_cast<size_t>(expert);
  };
  for (int t = 0; t < kTokens; ++t) {
    r.choice[static_cast<size_t>(t)] = WantedExpert(t);
    for (int e = 0; e < kExperts; ++e) {
      const float base = e == WantedExpert(t) ? 2.0f : 0.0f;
      r.scores[at(t, e)] = base + Noise(static_cast<uint32_t>(at(t, e)));
    }
  }
  for (int i = 0; i < kSequences * kExperts; ++i) {
    const int sequence = i / kExperts, e = i % kExperts;
    std::vector<int> candidates;
    for (int t = sequence * kLength; t < (sequence + 1) * kLength; ++t) {
      if (WantedExpert(t) == e) candidates.push_back(t);
    }
    std::sort(candidates.begin(), candidates.end(),
              [&](int a, int b) { return r.scores[at(a, e)] > r.scores[at(b, e)]; });
    for (size_t place = 0; place < candidates.size(); ++place) {
      const bool kept = place < kCapacity;
      r.keep[static_cast<size_t>(candidates[place])] = kept ? 1 : 0;
      ++(kept ? r.load : r.refused)[static_cast<size_t>(e)];
    }
  }
  return r;
}

void Describe(const Router& r, v1::Routing* routing) {
  v1::RoutingConfig* config = routing->mutable_config();
  config->set_top_k(1);
  config->set_experts(kExperts);
  config->set_capacity_kind(v1::RoutingConfig::CAPACITY_DECLARED);
  config->set_capacity(kCapacity);
  config->set_policy("score-capacity");
  config->set_pool(v1::RoutingConfig::POOL_SEQUENCE);
  config->set_mode("train");

  v1::RoutingSummary* summary = routing->mutable_summary();
  summary->set_tokens(kTokens);
  summary->set_choices(kTokens);
  summary->set_dropped(std::accumulate(r.refused.begin(), r.refused.end(), uint64_t{0}));
  summary->mutable_load()->Assign(r.load.begin(), r.load.end());
  summary->mutable_refused()->Assign(r.refused.begin(), r.refused.end());

  v1::RoutingSample* sample = routing->mutable_sample();
  sample->set_scores_are_logits(true);
  std::vector<int32_t> sequence(kTokens), position(kTokens);
  for (int t = 0; t < kTokens; ++t) {
    sequence[static_cast<size_t>(t)] = t / kLength;
    position[static_cast<size_t>(t)] = t % kLength;
  }
  Fill(sample->mutable_scores(), v1::DTYPE_F32, {kTokens, kExperts}, r.scores);
  Fill(sample->mutable_topk_indices(), v1::DTYPE_I32, {kTokens, 1}, r.choice);
  Fill(sample->mutable_keep_mask(), v1::DTYPE_U8, {kTokens, 1}, r.keep);
  Fill(sample->mutable_sequence_id(), v1::DTYPE_I32, {kTokens}, sequence);
  Fill(sample->mutable_position(), v1::DTYPE_I32, {kTokens}, position);
  Fill(sample->mutable_pool_id(), v1::DTYPE_I32, {kTokens}, sequence);
}

}  // namespace

v1::Batch DoctorBatch(uint64_t stream_id) {
  v1::Batch batch;
  batch.set_stream_id(stream_id);
  batch.set_sequence(1);
  v1::Source* source = batch.add_sources();
  source->set_run(kDoctorRun);
  source->set_role(v1::ROLE_TRAINER);
  source->set_world_size(1);
  v1::Evidence* evidence = batch.add_evidence();
  evidence->mutable_site()->set_layer("doctor");
  evidence->mutable_site()->set_op("routing");
  evidence->set_sample_size(kTokens);
  evidence->set_exercised(v1::EXERCISED_YES);
  Describe(LeakingRouter(), evidence->mutable_routing());
  v1::SiteDeclaration* declaration = batch.add_declarations();
  *declaration->mutable_site() = evidence->site();
  declaration->set_kind("routing");
  v1::Progress* progress = batch.add_progress();
  progress->set_any_step(true);
  progress->set_finished(true);
  return batch;
}

}  // namespace plumbline::audit
