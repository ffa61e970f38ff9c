// Tests an optimizer's state of a parameter in one checkpoint, element by element: whether its
// denominator, sqrt(v) + eps, is large enough.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/dtype.h"

namespace plumbline::analysis {

// Covers one step and keeps nothing. For checkpoints only: the ops are "exp_avg" and "exp_avg_sq".
class HeldMoments {
 public:
  static bool ReadsScalar(const v1::Site& site);
  // Takes a site of the step.
  void Take(const SiteStep& step);
  // Adds a verdict for each parameter and rank whose eps is known.
  void Close(const StepEnd& step, VerdictSink& out);

 private:
  struct Open {
    DType dtype = DType::kUnspecified;  // of the second moment
    uint64_t zeros = 0;                 // of all its elements
    bool square = false, poisoned = false;
    std::vector<uint64_t> indices;
    std::vector<double> second, first;  // sampled, for the same elements
    std::optional<double> beta1, beta2, epsilon;
    std::optional<bool> weight_finite;
  };

  static void TakeTensor(const std::string& op, const v1::TensorState& state, Open* open);
  static std::optional<v1::Verdict> Judge(const Open& open);
  static v1::Verdict Zero(const Open& open);

  std::map<std::pair<uint32_t, std::string>, Open> open_;  // by rank and layer
};

}  // namespace plumbline::analysis
