// The memory of one GPU. State: Rajbhandari et al. 2020 (ZeRO). Activations: Korthikanti et al.
// 2022 ("Reducing Activation Recomputation in Large Transformer Models"), for 16-bit activations.
#pragma once

#include <vector>

#include "calculators/plan/input.h"

namespace plumbline::plan {

struct StateBytes {
  Sharding sharding = Sharding::kNone;
  double weights = 0, gradients = 0, optimizer = 0;  // bytes of one GPU
  double total() const { return weights + gradients + optimizer; }
};
// Returns the state for each way to shard, in the order of the enum; in.layout.sharding is ignored.
std::vector<StateBytes> StateOfShardings(const Input& in);

// Returns the bytes of activations on the first stage's GPU, over all micro-batches in flight
// (1F1B). NaN if hidden is not known.
struct ActivationBytes {
  double all = 0;        // attention's scores are stored: 34 + 5 heads sequence / hidden per layer
  double selective = 0;  // they are not stored (selective recomputation, fused attention): 34
  double full = 0;       // only the layers' inputs: 2
};
ActivationBytes Activations(const Input& in);

}  // namespace plumbline::plan
