#include "tests/rules/attack/rollout_masks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/rules/attack/rollout_families.h"

namespace plumbline::rules::testing {
namespace {

float At(const v1::Tensor& tensor, size_t i) {
  float value;
  std::memcpy(&value, tensor.data().data() + i * sizeof value, sizeof value);
  return value;
}

// Returns a run whose trainer is ahead, so that ratios are spread; every second one has entropies.
RolloutSpec Spread(int seed) {
  RolloutSpec spec;
  spec.seed = seed;
  spec.steps = 24;
  spec.contexts = 32;
  spec.lag = 1 + seed % 8;
  spec.drift = 0.1 + 0.1 * (seed % 3);
  spec.noise = seed % 2 == 0 ? "fp8" : "moe";
  spec.entropy = seed % 2 == 0;
  spec.rollout_entropy = spec.rollout_varentropy = seed % 3 == 0;
  spec.versions_recorded = seed % 5 != 0;
  return spec;
}

RolloutSpec Sampled(RolloutSpec spec, bool guilty) {
  if (!guilty) return spec;
  spec.sin = "raw-at-temperature";
  spec.temperature = 0.75;
  return spec;
}

// Masks the tokens whose ratio lies outside [low, high]; their values stay in the record.
v1::Batch RejectedTokens(int seed, bool guilty) {
  static constexpr double kLimits[][2] = {{.5, 5}, {.5, 2}, {.8, 1.25}, {0, 2}, {.9, 1.1}};
  const double low = kLimits[seed % 5][0], high = kLimits[seed % 5][1];
  v1::Batch batch = RolloutRun(Sampled(Spread(seed), guilty));
  EachSequence(&batch, [&](v1::LogprobsSequence& s, int64_t, int) {
    for (size_t i = 0; i < s.length(); ++i) {
      const double ratio =
          std::exp(double{At(s.train().logprobs(), i)} - double{At(s.rollout().logprobs(), i)});
      s.mutable_mask()->push_back(ratio >= low && ratio <= high ? 1 : 0);
    }
  });
  return batch;
}

// Masks whole sequences whose mean d lies outside a band, as rejection by geometric mean does.
v1::Batch RejectedSequences(int seed, bool guilty) {
  const double most = std::array{.002, .01, .05}[static_cast<size_t>(seed % 3)];
  RolloutSpec spec = Sampled(Spread(seed), guilty);
  spec.lag = seed % 3;
  v1::Batch batch = RolloutRun(spec);
  EachSequence(&batch, [&](v1::LogprobsSequence& s, int64_t, int) {
    double sum = 0;
    for (size_t i = 0; i < s.length(); ++i)
      sum += double{At(s.train().logprobs(), i)} - double{At(s.rollout().logprobs(), i)};
    const bool kept = std::fabs(sum) <= most * static_cast<double>(s.length());
    s.set_mask(std::string(s.length(), kept ? '\1' : '\0'));
  });
  return batch;
}

// The same as RejectedTokens, after a masked prompt that has placeholders at the engine.
v1::Batch RejectedAfterPrompts(int seed, bool guilty) {
  v1::Batch batch = RejectedTokens(seed, guilty);
  EachSequence(&batch, [&](v1::LogprobsSequence& s, int64_t, int number) {
    const size_t prompt = 8 + static_cast<size_t>(number % 3);
    for (size_t i = 0; i < prompt; ++i) (*s.mutable_mask())[i] = 0;
    EachValue(s.mutable_rollout()->mutable_logprobs(),
              [&](float value, size_t i) { return i < prompt ? 0 : value; });
  });
  return batch;
}

// Values of tokens beyond a rank are null at the engine, as with its `logprobs` option.
v1::Batch BeyondRank(int seed, bool guilty) {
  RolloutSpec spec = Spread(seed);
  spec.lag = seed % 4;
  spec.null_beyond_rank = std::array{5, 10, 20, 50}[static_cast<size_t>(seed % 4)];
  spec.entropy = seed % 3 != 0;
  spec.rollout_entropy = spec.rollout_varentropy = seed % 2 == 0;
  return RolloutRun(Sampled(spec, guilty));
}

// Each sequence is recorded by several ranks, under the rank's own id.
v1::Batch Copies(int seed, bool guilty) {
  static constexpr int kRanks[] = {2, 4, 8, 16};
  RolloutSpec spec = Spread(seed);
  spec.steps = 8;
  v1::Batch batch = RolloutRun(Sampled(spec, guilty));
  for (v1::Evidence& e : *batch.mutable_evidence()) {
    const v1::Logprobs once = e.logprobs();
    for (int rank = 1; rank < kRanks[seed % 4]; ++rank) {
      for (v1::LogprobsSequence s : once.sequences()) {
        s.set_id("rank-" + std::to_string(rank) + "." + s.id());
        *e.mutable_logprobs()->add_sequences() = s;
      }
    }
  }
  return batch;
}

}  // namespace

v1::Batch FirstTokensDiffer(int seed, bool guilty) {
  RolloutSpec spec;
  spec.seed = seed;
  spec.steps = 12;
  spec.contexts = 64;
  spec.entropy = seed % 2 == 0;
  spec.versions_recorded = guilty || seed % 3 != 0;
  const size_t first = guilty ? 8 : 16;
  v1::Batch batch = RolloutRun(spec);
  EachSequence(&batch, [&](v1::LogprobsSequence& s, int64_t step, int number) {
    if (guilty && step == 0) return;  // no cache holds older weights yet
    Draw draw(static_cast<uint64_t>(seed) * 100000 + static_cast<uint64_t>(number));
    const v1::Tensor rollout = s.rollout().logprobs();
    const double size = 0.1 * (1 + seed % 3);
    EachValue(s.mutable_train()->mutable_logprobs(), [&](float value, size_t i) {
      if (i >= first) return value;
      const double noise = draw.Normal();
      // A stale prefix changes every token; more noise where tokens are unlikely is honest.
      const double by = guilty ? size : 0.02 * std::min(4.0, -double{At(rollout, i)});
      return std::min(0.0f, value + static_cast<float>(by * noise - by * by / 2));
    });
  });
  return batch;
}

v1::Batch OneWorkerOfEight(int seed, bool guilty) {
  RolloutSpec spec;
  spec.seed = seed;
  spec.workers = 8;
  spec.sequences = 8;
  spec.steps = 2 + seed % 2;
  spec.length = 256;
  spec.entropy = seed % 2 == 0;
  if (guilty) {
    spec.sin = "processed-against-raw";
    spec.temperature = seed % 4 < 2 ? 0.7 : 1.4;
    spec.guilty = "worker";
    spec.guilty_every = 8;
  }
  return RolloutRun(spec);
}

const std::vector<ChosenRollout>& ChosenRollouts() {
  static const std::vector<ChosenRollout> families = {
      {"tokens rejected by ratio", RejectedTokens},
      {"sequences rejected by ratio", RejectedSequences},
      {"tokens rejected by ratio after prompts", RejectedAfterPrompts},
      {"null beyond a rank", BeyondRank},
      {"copies under other ids", Copies},
  };
  return families;
}

}  // namespace plumbline::rules::testing
