// What a training step costs before it runs, and which limit it pays for. The room's entry: who
// stands outside includes this header alone.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "analysis/plan/crossover.h"  // IWYU pragma: export
#include "analysis/plan/input.h"      // IWYU pragma: export
#include "analysis/plan/memory.h"     // IWYU pragma: export

namespace plumbline::plan {

// Four of the five tolls; what traffic inside of a GPU takes, no plan can know: it is in the MFU.
enum class Toll { kState, kActivations, kNetwork, kBubble };
const char* TollName(Toll toll);  // "memory for state", ..., "the cable", "the bubble"

struct TollPaid {
  Toll toll = Toll::kState;
  // Of memory: taken, of what there is; above 1 it does not fit. Of time: of the step.
  double share = 0;
  bool is_time = false;
};

struct Plan {
  Input input;
  double compute_seconds = 0;
  double network_seconds = 0;
  double critical_tokens = 0;  // a GPU
  double tokens_per_gpu = 0;
  double micro_batches = 0;  // of a replica; below 1: replicas have nothing to do
  double bubble = 0;         // share of the computing time
  double step_seconds = 0;   // at least
  double exposed_share = 0;  // of the step, waited for the network at least
  std::vector<Lever> levers;
  std::vector<StageCost> stages;
  std::vector<StateBytes> states;
  ActivationBytes activations;
  std::vector<TollPaid> tolls;  // the one that limits first; then the one behind it, ...

  const StateBytes& state() const { return states[static_cast<size_t>(input.layout.sharding)]; }
};

// InvalidArgument as CheckPlan.
absl::StatusOr<Plan> MakePlan(const Input& input);

}  // namespace plumbline::plan
