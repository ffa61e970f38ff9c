#include "tests/rules/attack/late_onsets.h"

#include <cstddef>

namespace plumbline::rules::testing {
namespace {

// Returns the seed's element of a list. `stride` separates the lists of one spec.
template <typename T, size_t N>
T Pick(const T (&list)[N], int seed, int stride) {
  return list[static_cast<size_t>(seed / stride) % N];
}

RolloutSpec Late(int seed, const char* sin, double size) {
  RolloutSpec spec;
  spec.seed = seed;
  spec.sin = sin;
  spec.size = size;
  spec.steps = Pick({32, 64}, seed, 1);
  spec.from_step = spec.steps * Pick({1, 3, 5, 7}, seed, 2) / 8;
  spec.sequences = Pick({8, 16}, seed, 3);
  spec.length = Pick({48, 96, 24}, seed, 1);
  spec.family = Pick({"small", "small", "large"}, seed, 5);
  // Few contexts recur within a step; many hardly do.
  spec.contexts = spec.family == std::string("large") ? 32 : Pick({8, 64, 4096}, seed, 1);
  spec.entropy = seed % 2 == 0;
  spec.versions_recorded = seed % 5 != 0;
  // Repeated values within a step need weights that change between steps.
  spec.learning = spec.contexts == 8;
  spec.drift = 0.02;
  spec.noise = Pick({"dense", "moe", "fp8"}, seed, 4);
  spec.workers = Pick({1, 2, 8}, seed, 7);
  return spec;
}

RolloutSpec LateDropout(int seed) {
  return Late(seed, "dropout", Pick({0.15, 0.3, 0.6, 1.0, 1.5, 2.2}, seed, 1));
}
RolloutSpec LateArithmetic(int seed) {
  return Late(seed, "batch-variance", Pick({0.02, 0.05, 0.1, 0.15}, seed, 1));
}
RolloutSpec LateTokenisation(int seed) {
  RolloutSpec spec = Late(seed, "retokenised", 0);
  spec.share = Pick({0.01, 0.03, 0.1, 0.3}, seed, 1);
  return spec;
}
RolloutSpec LateTemplate(int seed) {
  return Late(seed, "template", Pick({0.5, 0.8, 1.2, 2.0}, seed, 1));
}
RolloutSpec LateModel(int seed) {
  return Late(seed, "other-model", Pick({0.4, 0.8, 1.4, 2.2}, seed, 1));
}
RolloutSpec LateMiss(int seed) {
  RolloutSpec spec = Late(seed, "missed-sync", 0);
  spec.drift = Pick({0.03, 0.06}, seed, 1);
  spec.versions = Pick({1, 2, 4, 8}, seed, 2);
  spec.ramp = seed % 3 == 0;
  return spec;
}
RolloutSpec Healthy(int seed) { return Late(seed, "", 0); }

}  // namespace

const std::vector<LateOnset>& LateOnsets() {
  static const std::vector<LateOnset> families = {
      {"late dropout", "batch-variance", "dropout", LateDropout},
      {"late other arithmetic", "noise", "", LateArithmetic},
      {"late other tokens", "retokenisation", "token", LateTokenisation},
      {"late other template", "template", "prompts", LateTemplate},
      {"late other model", "other-model", "model", LateModel},
      {"late missed update", "missed-sync", "update", LateMiss},
      {"healthy", "", "", Healthy},
  };
  return families;
}

}  // namespace plumbline::rules::testing
