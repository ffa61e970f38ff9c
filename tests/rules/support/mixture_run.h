// Simulated runs of a mixture layer: summaries over many steps, healthy or with a planted fault.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct MixtureRunSpec {
  int experts = 8;
  int choices = 512;  // a rank and step, before padding
  int ranks = 1;
  int steps = 120;
  // What makes experts unlike.
  std::vector<std::pair<int, double>> popularity;  // expert, factor on its weight
  double unlike = 0;  // deviation of the experts' log weights, fixed for the run
  double drift = 0;   // the same, wandering over steps (correlation 0.95)
  double topics = 0;  // the same, drawn anew for each sequence of 64 choices
  double grow = 1;    // expert 0's weight grows to this factor at the last step
  // What is refused: a share of all choices, `rise` (share) more at the last position than the
  // first; the share wanders over steps with this correlation and deviation.
  double refuse = 0;
  double rise = 0;
  double wander = 0;
  double wander_correlation = 0;
  bool ragged = false;  // fewer choices at late positions
  bool positions = true;
  bool offered = true;         // recorded by position beside what was refused
  double capacity_factor = 0;  // > 0: kept loads are cut at factor * choices / experts
  double entropy_first = 0.8;
  double entropy_last = 0.8;
  double padding_share = 0;  // of padding rows' choices, all kept by expert `padding_expert`
  int padding_expert = 0;
  int nan_every = 0;        // every n-th step's means are NaN
  bool replicated = false;  // all ranks hold the same tokens
  std::string mode = "train";
  uint32_t attempt = 0;
  int64_t first_step = 0;
  int opening = 0;  // so many steps are all recorded,
  int every = 1;    // and each so many-th after them
  uint64_t seed = 1;
};

// "experts = 64", one setting. Throws std::runtime_error on an unknown key.
void Set(MixtureRunSpec& spec, const std::string& key, const std::string& value);

// One batch with every rank and step, layer "layers.0", op "routing".
v1::Batch MixtureRun(const MixtureRunSpec& spec);

}  // namespace plumbline::rules::testing
