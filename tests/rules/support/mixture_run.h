// Simulated runs of a mixture layer: summaries over many steps, healthy or with an injected fault.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct MixtureRunSpec {
  int experts = 8;
  int choices = 512;  // per rank and step, before padding
  int ranks = 1;
  int steps = 120;
  // Differences between experts.
  std::vector<std::pair<int, double>> popularity;  // expert, factor on its weight
  double unlike = 0;  // deviation of the experts' log weights, fixed for the run
  double drift = 0;   // the same, varying over steps (correlation 0.95)
  double topics = 0;  // the same, drawn again for each sequence of 64 choices
  double grow = 1;    // expert 0's weight grows to this factor at the last step
  // Refusals: a share of all choices, with `rise` (share) more at the last position than at the
  // first. The share varies over steps with this correlation and deviation.
  double refuse = 0;
  double rise = 0;
  double wander = 0;
  double wander_correlation = 0;
  bool ragged = false;  // fewer choices at late positions
  bool positions = true;
  bool offered = true;         // recorded by position, in addition to the refusals
  double capacity_factor = 0;  // if > 0: kept loads are cut at factor * choices / experts
  double entropy_first = 0.8;
  double entropy_last = 0.8;
  // Share of choices of padding rows, all kept by expert `padding_expert`.
  double padding_share = 0;
  int padding_expert = 0;
  int nan_every = 0;        // every n-th step's means are NaN
  bool replicated = false;  // all ranks have the same tokens
  std::string mode = "train";
  uint32_t attempt = 0;
  int64_t first_step = 0;
  int opening = 0;  // this number of first steps is recorded,
  int every = 1;    // and then each n-th step
  uint64_t seed = 1;
};

// Sets one field, such as "experts = 64". Throws std::runtime_error if the key is unknown.
void Set(MixtureRunSpec& spec, const std::string& key, const std::string& value);

// Returns one batch with every rank and step, layer "layers.0", op "routing".
v1::Batch MixtureRun(const MixtureRunSpec& spec);

}  // namespace plumbline::rules::testing
