// Training's and inference's recordings of the same tokens, with the rule that each side applies
// and the rule that it records.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct SideRule {
  double bias = 0;  // deviation of the experts' biases; 0: none
  uint64_t bias_seed = 1;
  int groups = 0, top_groups = 0;
  v1::ScoreFunction function = v1::SCORE_SIGMOID;
  bool after_function = false;  // scores are recorded after the function
  bool record_bias = true;
  bool bias_in_scores = false;  // the recorded scores contain the bias
};

struct RulePairSpec {
  int tokens = 1280;  // in sequences of 64
  int experts = 32;
  int top_k = 4;
  double noise = 0.004;  // deviation of inference's logits
  double extra = 0;      // further noise before inference's choice, not in its recorded scores
  SideRule train, infer;
  bool replayed = false;  // training replays inference's choices
  uint64_t seed = 1;
};

// Returns training's batch, then inference's.
std::vector<v1::Batch> RulePair(const RulePairSpec& spec);

}  // namespace plumbline::rules::testing
