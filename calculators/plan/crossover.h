// Compares computing with the network. Formulas: the textbook roofline of sharded data parallelism
// (Austin et al. 2025, "How to Scale Your Model"; Rajbhandari et al. 2020, ZeRO), bubbles from
// Narayanan et al. 2021 (Megatron-LM).
#pragma once

#include <string>
#include <vector>

#include "calculators/plan/input.h"

namespace plumbline::plan {

// Returns the bytes/s at which one GPU receives data from its shard group: the link times the
// domain's size if all its GPUs carry a part (hierarchical collectives), but never more than the
// link within the domain. If the group is within one domain, returns that link alone.
double GroupBandwidth(const Input& in);

// Returns the seconds for 6 FLOPs per token and used parameter, over all GPUs at the assumed
// utilisation.
double ComputeSeconds(const Input& in);

// Returns the seconds of the network for one step, for a GPU that holds 1/(tensor * stages) of the
// model. If weights are sharded, they are gathered twice (forward, backward) for each of `gathers`
// micro-batches. Gradients are reduced `reductions` times. Without sharding: both halves of an
// all-reduce.
double NetworkSeconds(const Input& in);

// Returns the number of tokens per GPU and step above which computing hides the network.
// Independent of the batch.
double CriticalTokens(const Input& in);

// Returns (p-1)/(v m + p-1) of a step. With one stage, returns 0.
double BubbleShare(double stages, double micro_batches, double virtual_stages);

// A change of one setting, and the resulting crossover.
struct Lever {
  std::string what;
  double critical_tokens = 0;
  double tokens_per_gpu = 0;
};
std::vector<Lever> Levers(const Input& in);

// The same model over `stages` stages, with everything else unchanged.
struct StageCost {
  double stages = 1;
  double micro_batches = 0;
  double bubble = 0;
  double network_seconds = 0;
  double step_seconds = 0;  // the larger of network time, and computing time with its bubble
};
// Returns the costs for one, two, four, ... stages, as far as GPUs, layers and the batch allow.
std::vector<StageCost> StageCosts(const Input& in);

}  // namespace plumbline::plan
