#include "calculators/plan/plan.h"

#include <algorithm>
#include <cmath>

namespace plumbline::plan {
namespace {

// Order of the bottlenecks: memory that does not fit, then costs of time, then memory that fits
// with the least margin.
int Order(const BottleneckShare& t) {
  if (!t.is_time && t.share > 1) return 0;
  return t.is_time && t.share > 0 ? 1 : 2;
}

std::vector<BottleneckShare> BottlenecksOf(const Plan& plan) {
  const double memory = plan.input.cluster.memory;
  std::vector<BottleneckShare> bottlenecks = {
      {Bottleneck::kState, plan.state().total() / memory, false},
      {Bottleneck::kNetwork, plan.exposed_share, true},
      {Bottleneck::kBubble, 0, true}};
  const double computing = plan.compute_seconds / (1 - plan.bubble);
  bottlenecks[2].share = plan.bubble * computing / plan.step_seconds;
  if (std::isfinite(plan.activations.selective))
    bottlenecks.push_back({Bottleneck::kActivations, plan.activations.selective / memory, false});
  std::stable_sort(bottlenecks.begin(), bottlenecks.end(),
                   [](const BottleneckShare& a, const BottleneckShare& b) {
                     return Order(a) != Order(b) ? Order(a) < Order(b) : a.share > b.share;
                   });
  return bottlenecks;
}

}  // namespace

const char* BottleneckName(Bottleneck bottleneck) {
  constexpr const char* kNames[] = {"memory for state", "memory for activations", "the cable",
                                    "the bubble"};
  return kNames[static_cast<int>(bottleneck)];
}

absl::StatusOr<Plan> MakePlan(const Input& in) {
  if (auto s = CheckPlan(in); !s.ok()) return s;
  Plan plan;
  plan.input = in;
  plan.compute_seconds = ComputeSeconds(in);
  plan.network_seconds = NetworkSeconds(in);
  plan.critical_tokens = CriticalTokens(in);
  plan.tokens_per_gpu = in.layout.batch_tokens / in.cluster.gpus;
  plan.micro_batches = MicroBatches(in);
  plan.bubble =
      BubbleShare(in.layout.stages, std::max(1.0, plan.micro_batches), in.layout.virtual_stages);
  const double computing = plan.compute_seconds / (1 - plan.bubble);
  plan.step_seconds = std::max(computing, plan.network_seconds);
  plan.exposed_share = (plan.step_seconds - computing) / plan.step_seconds;
  plan.levers = Levers(in);
  plan.stages = StageCosts(in);
  plan.states = StateOfShardings(in);
  plan.activations = Activations(in);
  plan.bottlenecks = BottlenecksOf(plan);
  return plan;
}

}  // namespace plumbline::plan
