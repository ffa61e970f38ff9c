// Computing against the network. Formulas: the textbook roofline of sharded data parallelism
// (Austin et al. 2025, "How to Scale Your Model"; Rajbhandari et al. 2020, ZeRO), bubbles from
// Narayanan et al. 2021 (Megatron-LM).
#pragma once

#include <string>
#include <vector>

#include "analysis/plan/input.h"

namespace plumbline::plan {

// Bytes/s at which one GPU gets what its shard group sends: the link times the domain's size where
// all its GPUs carry a part (hierarchical collectives), never above the domain's own link; within
// one domain that link alone.
double GroupBandwidth(const Input& in);

// 6 FLOPs a token and used parameter, over all GPUs at the assumed utilisation. Seconds.
double ComputeSeconds(const Input& in);

// Seconds of the network for one step, of a GPU that holds 1/(tensor * stages) of the model:
// weights gathered twice (forward, backward) for each of `gathers` micro-batches where they are
// sharded, gradients reduced `reductions` times; without any sharding both halves of an all-reduce.
double NetworkSeconds(const Input& in);

// Tokens a GPU and step from which on computing hides the network. Independent of the batch.
double CriticalTokens(const Input& in);

// (p-1)/(v m + p-1) of a step; 0 with one stage.
double BubbleShare(double stages, double micro_batches, double virtual_stages);

// A change of one setting and where the crossover goes.
struct Lever {
  std::string what;
  double critical_tokens = 0;
  double tokens_per_gpu = 0;
};
std::vector<Lever> Levers(const Input& in);

// The same model over so many stages, everything else as it is.
struct StageCost {
  double stages = 1;
  double micro_batches = 0;
  double bubble = 0;
  double network_seconds = 0;
  double step_seconds = 0;  // the larger of network and computing with its bubble
};
// One, two, four, ... stages, as far as GPUs, layers and the batch allow.
std::vector<StageCost> StageCosts(const Input& in);

}  // namespace plumbline::plan
