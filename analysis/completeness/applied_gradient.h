// One parameter's gradients in one step: each rank's own, and what the optimizers applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

using GradientValues = std::vector<double>;

// Reductions of this algorithm hold, for one parameter: `inputs` [m] this rank's own gradient
// before any reduction, `output` [m] the gradient that its optimizer read, if this rank holds the
// parameter. Ranks that report one site and the same elements hold copies of one parameter.
inline constexpr char kAppliedGradient[] = "applied-gradient";

struct AppliedGradient {
  static constexpr size_t kMostElements = 256;
  static constexpr size_t kMostRows = 1024;  // ranks in one record

  std::string layer, op;                // the parameter
  std::vector<uint32_t> ranks;          // those that reported, ascending
  std::vector<GradientValues> own;      // [rank][m]
  std::vector<GradientValues> applied;  // [rank][m]; empty if the rank does not hold the parameter
  std::vector<uint64_t> elements;       // [m], places in the flattened parameter
  uint64_t count = 0;                   // elements of the parameter; 0: not known
  double unit = 0;                      // unit roundoff of the coarsest dtype of these values
  bool declared = false;                // the ranks' gradients are to be summed or averaged
  std::string problem;                  // "short-id: sentence" if it cannot be judged

  size_t samples() const { return elements.size(); }
};

// Returns nullopt if the step has no such record at this site.
std::optional<AppliedGradient> DecodeApplied(const SiteStep& step);

}  // namespace plumbline::analysis
