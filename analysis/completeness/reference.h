// The weights of the ranks on which most parameters of a step agree.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "analysis/completeness/weights_fit.h"

namespace plumbline::analysis {

using RankSet = std::vector<uint32_t>;  // ascending

// One distinct applied gradient of a parameter, and its fit to the own gradients.
struct HeldGradient {
  const AppliedGradient* parameter = nullptr;
  size_t number = 0;  // of the parameter in its step
  RankSet holders;    // the ranks that applied it, bit by bit
  const GradientValues* applied = nullptr;
  // Own gradients that are not all zero. Ranks whose own gradients are equal are one column.
  std::vector<RankSet> columns;
  std::vector<const GradientValues*> own;  // by column
  std::optional<WeightsFit> fit;
};

// Returns the distinct applied gradients of a parameter without a problem.
std::vector<HeldGradient> HeldGradientsOf(const AppliedGradient& parameter, size_t number);

class ReferenceWeights {
 public:
  static constexpr size_t kFewest = 3;      // gradients that agree
  static constexpr double kMajority = 0.6;  // of those with the same columns

  explicit ReferenceWeights(const std::vector<HeldGradient>& held);

  // Returns the weights of the columns; empty if one of them is not known.
  std::vector<double> Of(const HeldGradient& held) const;
  // Returns true if the fit agrees with these weights: within the larger of 0.2 % and five standard
  // errors.
  static bool Agrees(const WeightsFit& fit, const std::vector<double>& weights);

  size_t agreeing() const { return agreeing_; }
  // Error of an element that the arithmetic of the sums explains, as a share of its summed
  // magnitudes: four times the largest error of a gradient that agrees (median over these), at
  // least 8 unit roundoffs.
  double slack() const { return slack_; }

 private:
  using Group = std::vector<const HeldGradient*>;

  void TakeGroup(const Group& group);

  std::map<RankSet, double> weight_;
  std::vector<double> errors_;  // of each that agrees: its largest one
  size_t agreeing_ = 0;
  double slack_ = 0;
};

// Returns sum over the columns of weights * own at element i, and the sum of its magnitudes.
struct WeightedElement {
  double sum = 0, mass = 0;
};
WeightedElement SumAt(const HeldGradient& held, const std::vector<double>& weights, size_t i);

// Returns the largest error of an element, as a share of its summed magnitudes.
double LargestError(const HeldGradient& held, const std::vector<double>& weights);

}  // namespace plumbline::analysis
