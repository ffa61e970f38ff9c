// Names the number that the factor between a logged and a measured value is.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "analysis/role/role.h"

namespace plumbline::analysis {

// The numbers of a run that a factor may be; 0: not known.
struct RunNumbers {
  double passes = 0;  // micro-batches of a step
  double ranks = 0;
  std::set<double> scales;  // loss scales that a scaler held
};

struct FactorOrigin {
  std::string words;       // "1 / 4 micro-batches"
  const char* cause = "";  // "micro-batches", "ranks", "loss-scale"
  bool sure = true;        // false: the factor may as well be a definition, such as that of 1/2 MSE
};

// A factor is a number of micro-batches or of ranks, its inverse, for a norm also its root (the
// norm of a sum of n independent gradients), or a loss scale that was held. Factors of 2 and 1/2 of
// losses, rates and tokens are not sure.
std::optional<FactorOrigin> OriginOf(double factor, SeriesRole role, const RunNumbers& numbers);

}  // namespace plumbline::analysis
