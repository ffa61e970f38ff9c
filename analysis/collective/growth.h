// Simulates, without measurements, a collective's sums over more ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/collective/errors.h"
#include "analysis/collective/replay/replay.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Bias of sums over `ranks` ranks: mean error in ulp, and 4.9 standard errors.
struct GrownBias {
  int ranks = 0;
  double mean = 0;
  double half_width = 0;
  double relative = 0;  // mean relative error
  bool beyond_budget() const;
  void Persist(Archive& a) { a(ranks, mean, half_width, relative); }
};

struct RankGrowth {
  std::vector<GrownBias> tried;  // N doubled up to 2,048, until the budget is exceeded
  // Returns the number of ranks at which the bias first exceeds the budget. If it does not up to
  // the last one tried, returns 0.
  int breaks_at() const;
  void Persist(Archive& a) { a(tried); }
};

// Draws normal addends with the mean and the deviation over ranks of the sampled elements. Sums
// them as the accepted class does: rings from any start, trees, groups. Deterministic.
RankGrowth GrowReduction(const ReductionCase& c, const ReductionReplay& replay);

// Predicts from a call alone: addends c (1 + 0.3 normal), c log-normal, in a ring of that dtype.
GrownBias PredictRing(DType dtype, int ranks);

}  // namespace plumbline::analysis
