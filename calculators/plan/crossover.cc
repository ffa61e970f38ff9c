#include "calculators/plan/crossover.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace plumbline::plan {
namespace {

// Returns the bytes per parameter that the collectives move in a step.
double BytesPerParameter(const Layout& l) {
  const double reduced = l.gradient_bytes * l.reductions;
  switch (l.sharding) {
    case Sharding::kNone:
      return 2 * reduced;  // all-reduce: reduce-scatter and all-gather
    case Sharding::kOptimizer:
    case Sharding::kGradients:
      return l.weight_bytes + reduced;  // updated weights are gathered once
    case Sharding::kWeights:
      return 2 * l.weight_bytes * l.gathers + reduced;
  }
  return 0;
}

double FlopsPerSecond(const Cluster& c) { return c.peak * c.mfu * c.gpus; }

void AddLever(std::vector<Lever>* levers, const std::string& what, const Input& changed) {
  levers->push_back(
      {what, CriticalTokens(changed), changed.layout.batch_tokens / changed.cluster.gpus});
}

}  // namespace

double GroupBandwidth(const Input& in) {
  const Cluster& c = in.cluster;
  if (c.gpus <= c.domain) return c.domain_link;
  return std::min(c.domain_link, (c.rails ? c.domain : 1) * c.link);
}

// A replica computes whole sequences: the one with the most determines the step.
double ComputeSeconds(const Input& in) {
  const double even = 6 * in.layout.batch_tokens * in.model.used() / FlopsPerSecond(in.cluster);
  const double sequences = Sequences(in), replicas = DataParallel(in);
  const double most = std::ceil(std::max(1.0, std::floor(sequences + 1e-6)) / replicas - 1e-9);
  return even * std::max(1.0, most * replicas / sequences);
}

double NetworkSeconds(const Input& in) {
  if (DataParallel(in) <= 1) return 0;
  const double held = in.model.parameters / (in.layout.tensor * in.layout.stages);
  return held * BytesPerParameter(in.layout) / GroupBandwidth(in);
}

double CriticalTokens(const Input& in) {
  const double rate = in.cluster.peak * in.cluster.mfu;
  return NetworkSeconds(in) * rate / (6 * in.model.used());
}

double BubbleShare(double stages, double micro_batches, double virtual_stages) {
  if (stages <= 1) return 0;
  return (stages - 1) / (virtual_stages * micro_batches + stages - 1);
}

std::vector<Lever> Levers(const Input& in) {
  std::vector<Lever> levers;
  const auto with = [&](const std::string& what, auto change) {
    Input changed = in;
    change(changed);
    AddLever(&levers, what, changed);
  };
  with("a batch twice as large", [](Input& i) { i.layout.batch_tokens *= 2; });
  with("half as many GPUs", [](Input& i) { i.cluster.gpus = std::max(1.0, i.cluster.gpus / 2); });
  if (in.layout.sharding == Sharding::kWeights && in.layout.gathers > 1)
    with("weights gathered once per step", [](Input& i) { i.layout.gathers = 1; });
  if (in.layout.sharding == Sharding::kWeights && in.layout.weight_bytes > 1)
    with("weights gathered in one byte", [](Input& i) { i.layout.weight_bytes = 1; });
  if (in.layout.sharding == Sharding::kWeights)
    with("weights kept whole (zero2)", [](Input& i) { i.layout.sharding = Sharding::kGradients; });
  if (in.layout.gradient_bytes < 4)
    with("gradients reduced in fp32", [](Input& i) { i.layout.gradient_bytes = 4; });
  if (in.cluster.gpus > in.cluster.domain) {
    if (in.cluster.rails && in.cluster.domain > 1)
      with("one rail instead of all", [](Input& i) { i.cluster.rails = false; });
    with("a link twice as fast", [](Input& i) { i.cluster.link *= 2; });
    with("a domain of 72 GPUs", [](Input& i) { i.cluster.domain = 72; });
  }
  return levers;
}

std::vector<StageCost> StageCosts(const Input& in) {
  std::vector<StageCost> costs;
  for (double p = 1; p * in.layout.virtual_stages <= static_cast<double>(in.model.layers) || p == 1;
       p *= 2) {
    Input with = in;
    with.layout.stages = p;
    if (p == 1) with.layout.virtual_stages = 1;
    const double m = MicroBatches(with);
    if (std::fmod(in.cluster.gpus, in.layout.tensor * p) != 0) break;
    if (!(m >= 1)) continue;  // too many replicas for the batch: more stages reduce them
    StageCost cost{p, m, BubbleShare(p, m, with.layout.virtual_stages), NetworkSeconds(with), 0};
    cost.step_seconds = std::max(cost.network_seconds, ComputeSeconds(with) / (1 - cost.bubble));
    costs.push_back(cost);
  }
  return costs;
}

}  // namespace plumbline::plan
