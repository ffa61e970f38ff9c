// Estimates the cost of a training step before it runs, and its bottleneck. The entry header of
// this folder: code outside includes this header alone.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "calculators/plan/crossover.h"  // IWYU pragma: export
#include "calculators/plan/input.h"      // IWYU pragma: export
#include "calculators/plan/memory.h"     // IWYU pragma: export

namespace plumbline::plan {

// Four of the five bottlenecks. A plan cannot know the traffic inside a GPU; it is part of the MFU.
enum class Bottleneck { kState, kActivations, kNetwork, kBubble };
const char* BottleneckName(
    Bottleneck bottleneck);  // "memory for state", ..., "the cable", "the bubble"

struct BottleneckShare {
  Bottleneck bottleneck = Bottleneck::kState;
  // For memory: the used share of the existing memory; above 1 it does not fit. For time: the share
  // of the step.
  double share = 0;
  bool is_time = false;
};

struct Plan {
  Input input;
  double compute_seconds = 0;
  double network_seconds = 0;
  double critical_tokens = 0;  // per GPU
  double tokens_per_gpu = 0;
  double micro_batches = 0;  // per replica; below 1, some replicas have no work
  double bubble = 0;         // share of the computing time
  double step_seconds = 0;   // lower bound
  double exposed_share = 0;  // lower bound of the share of the step that waits for the network
  std::vector<Lever> levers;
  std::vector<StageCost> stages;
  std::vector<StateBytes> states;
  ActivationBytes activations;
  std::vector<BottleneckShare> bottlenecks;  // the main bottleneck first, then the next one, ...

  const StateBytes& state() const { return states[static_cast<size_t>(input.layout.sharding)]; }
};

// Returns InvalidArgument as CheckPlan does.
absl::StatusOr<Plan> MakePlan(const Input& input);

}  // namespace plumbline::plan
