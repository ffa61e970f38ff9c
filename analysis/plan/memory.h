// What one GPU holds. State: Rajbhandari et al. 2020 (ZeRO). Activations: Korthikanti et al. 2022
// ("Reducing Activation Recomputation in Large Transformer Models"), of 16-bit activations.
#pragma once

#include <vector>

#include "analysis/plan/input.h"

namespace plumbline::plan {

struct StateBytes {
  Sharding sharding = Sharding::kNone;
  double weights = 0, gradients = 0, optimizer = 0;  // bytes of one GPU
  double total() const { return weights + gradients + optimizer; }
};
// For each way to shard, in the order of the enum; in.layout.sharding does not matter.
std::vector<StateBytes> StateOfShardings(const Input& in);

// Bytes of activations that the first stage's GPU holds, of all micro-batches in flight (1F1B).
// NaN where hidden is not known.
struct ActivationBytes {
  double all = 0;        // attention's scores are stored: 34 + 5 heads sequence / hidden a layer
  double selective = 0;  // they are not (selective recomputation, fused attention): 34
  double full = 0;       // the layers' inputs alone: 2
};
ActivationBytes Activations(const Input& in);

}  // namespace plumbline::plan
