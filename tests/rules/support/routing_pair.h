// Training's and inference's recordings of the same tokens, with injected differences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct RoutingPairSpec {
  int sequences = 8;
  int length = 256;
  int experts = 16;
  int top_k = 4;
  int layers = 1;
  // Distribution of training's logits: "normal", "cauchy", "lognormal", "uniform"; "discrete"
  // (integers), "relu" (half of them 0).
  std::string law = "normal";
  double noise = 0.004;  // deviation of inference's logits from training's
  // Distribution of the noise over tokens: "" equal; "outliers": one token in twenty has
  // `unequal_by` times the noise; "lognormal": e^N(0, ln unequal_by); "int8": each token's hidden
  // vector is quantised at inference with one scale, and one channel is `unequal_by` times the
  // others in one token of ten.
  std::string unequal;
  double unequal_by = 20;
  // The first `biased_experts` have `bias` added to their logits at inference.
  int biased_experts = 0;
  double bias = 0;
  // Share of tokens, from layer `flip_layer` on, whose logits are wrong by `flip_size` at
  // inference.
  double flip_share = 0;
  double flip_size = 0.5;
  int flip_layer = 0;
  int sentinel_every = 0;     // every n-th row's choices are -1 at inference
  int zero_gates_every = 0;   // every n-th row's gates are zero at inference
  int cut = 0;                // tokens missing at the end of sequence 3 at inference
  bool last_missing = false;  // the last token of each sequence is missing
  bool last_sentinel = false;
  bool gates = false;
  bool shuffled = false;      // inference's rows are in another order
  bool other_tokens = false;  // inference routed another text under the same ids
  bool drop_ids = false;      // inference has no sequence ids
  bool scores = true;         // at inference
  bool rollout_role = false;  // else mode eval within one process
  bool live = false;          // sources have a pid
  int64_t infer_step = 0;     // training's is 0
  std::string poison;         // "nan": a tenth of inference's rows
  uint64_t seed = 1;
};

void Set(RoutingPairSpec& spec, const std::string& key, const std::string& value);

// Returns training's batch, then inference's.
std::vector<v1::Batch> RoutingPair(const RoutingPairSpec& spec);

}  // namespace plumbline::rules::testing
