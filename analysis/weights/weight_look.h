// The data of one step on a weight: its bits, and what should have moved it: an observed gradient,
// or the optimizer's moments in a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/frame/frame.h"
#include "analysis/replicas/replicas.h"
#include "base/dtype.h"

namespace plumbline::analysis {

struct ObservedWeight {
  bool observed = false;         // whether the weight was observed
  std::optional<Digest> weight;  // set if the weight is finite
  uint32_t rank = 0;
  DType dtype = DType::kUnspecified;
  uint64_t count = 0;
  bool one_value = false;  // all elements are equal, so they may be at a bound
  double weight_amax = 0;
  bool gradient = false;  // finite and not zero
  double gradient_amax = 0;
  bool poisoned = false;
  bool updated = false;  // an update of this weight by an optimizer was observed

  // Of the optimizer's state. Not set if the optimizer has no state, or if the state is not finite
  // (`poisoned`).
  std::optional<Digest> moment;  // the first moment: exp_avg, momentum_buffer
  uint32_t moment_rank = 0;
  double moment_amax = 0;
  bool momentum = false;              // SGD's: the step is rate times this
  std::optional<double> square_amax;  // of exp_avg_sq
  std::optional<double> rate;         // of its parameter group

  // Takes a tensor of the weight's own name: roles "weight" and "gradient", and the moments by
  // their op. Items come by rank. If there are several ranks, the first is used, and of its calls
  // the last.
  void Take(std::string_view op, const Item& item);

  // Returns a lower bound of what one step at this rate adds to the element that it moves most.
  double LeastStep(double at_rate) const;
  // Returns true if such a step changes the weight's last place.
  bool Moves(double at_rate) const;
  // Returns true if rate times gradient, the step of plain descent, does not change the weight's
  // largest element.
  bool IsLostIfPlain(double at_rate) const;

 private:
  void TakeMoment(std::string_view op, const v1::TensorSummary& summary, uint32_t rank);
};

// Summary of a step's gradients. Used to test whether one of them is only a rounding error, as for
// a bias whose gradient is 0 by symmetry.
class UsualGradients {
 public:
  // Takes the weights of one step, by name. With few weights, no gradient counts as a rounding
  // error.
  void Take(const std::map<std::string, ObservedWeight>& weights);

  // Uses the gradient, or the first moment if the weight has no gradient.
  bool IsRounding(const ObservedWeight& weight) const;

 private:
  double gradient_ = 0, moment_ = 0;  // medians of the largest elements
};

}  // namespace plumbline::analysis
