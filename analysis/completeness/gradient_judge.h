// Finds the parameters of a step whose applied gradient is not the sum that the others are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/completeness/applied_gradient.h"

namespace plumbline::analysis {

struct GradientFault {
  // kLeftOut: ranks have weight 0. kDoubled: ranks have twice their weight. kScaled: all weights
  // have one factor, the number of ranks or its inverse. kOtherParameter: the sum contains the own
  // gradients of another parameter. kNotSummed: a rank applies its own gradient alone; in most
  // parameters if none is complete.
  enum class Kind { kLeftOut, kDoubled, kScaled, kOtherParameter, kNotSummed };
  Kind kind = Kind::kLeftOut;
  size_t parameter = 0;            // its number in the step
  std::vector<uint32_t> holders;   // ranks that applied it
  std::vector<uint32_t> ranks;     // ranks that were left out or doubled
  double factor = 1;               // of the other weights; for kScaled, of all
  std::string other;               // the other parameter
  std::vector<double> weights;     // for kOtherParameter: the other's weights, as shares of the
                                   // reference
  std::vector<uint32_t> of_ranks;  // their ranks
  // The element where the applied value is furthest from what the reference weights give.
  uint64_t element = 0;
  double applied = 0, expected = 0;
  size_t compared = 0;  // elements that agree with the explanation, all that are not zero
  bool proved = false;  // they do so within the arithmetic of the complete sums
};

struct GradientJudgement {
  static constexpr size_t kFewElements = 4;

  std::string reason;   // "short-id: sentence" if nothing can be compared; otherwise empty
  size_t complete = 0;  // parameters that have the reference's weights
  std::vector<GradientFault> faults;                    // by parameter
  std::vector<std::pair<size_t, std::string>> unknown;  // parameter, "short-id: sentence"
};

// Compares the parameters of one step. At least 3 of them, and 60 % of those over the same ranks,
// must agree on weights. Pure; thread-safe.
GradientJudgement JudgeGradients(const std::vector<AppliedGradient>& parameters);

}  // namespace plumbline::analysis
