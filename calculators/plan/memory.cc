#include "calculators/plan/memory.h"

#include <limits>

namespace plumbline::plan {

std::vector<StateBytes> StateOfShardings(const Input& in) {
  const Layout& l = in.layout;
  const double held = in.model.parameters / (l.tensor * l.stages);
  const double shares = DataParallel(in);
  std::vector<StateBytes> states;
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kWeights}) {
    const auto cut = [&](Sharding from) { return sharding >= from ? shares : 1; };
    states.push_back({sharding, held * l.weight_bytes / cut(Sharding::kWeights),
                      held * l.gradient_bytes / cut(Sharding::kGradients),
                      held * l.optimizer_bytes / cut(Sharding::kOptimizer)});
  }
  return states;
}

ActivationBytes Activations(const Input& in) {
  const ModelShape& m = in.model;
  const Layout& l = in.layout;
  if (m.hidden == 0) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    return {kNone, kNone, kNone};
  }
  const auto hidden = static_cast<double>(m.hidden), sequence = static_cast<double>(m.sequence);
  // The first of p stages has p micro-batches in flight, each with 1/p of the layers.
  const double interleaved =
      l.stages > 1 && l.virtual_stages > 1 ? 1 + (l.stages - 1) / (l.stages * l.virtual_stages) : 1;
  const double unit = sequence * l.micro_sequences * hidden * static_cast<double>(m.layers) *
                      interleaved / l.tensor;
  const double scores = 5 * static_cast<double>(m.heads) * sequence / hidden;
  return {unit * (34 + scores), unit * 34, unit * 2};
}

}  // namespace plumbline::plan
