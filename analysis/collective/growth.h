// Simulates a collective's sums over more ranks than were measured.
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
  std::vector<GrownBias> tried;  // results for N doubled up to 2,048, until the budget is exceeded
  // Returns the smallest tried number of ranks whose bias exceeds the budget, or 0 if there is
  // none.
  int breaks_at() const;
  void Persist(Archive& a) { a(tried); }
};

// Draws normal addends whose mean and deviation over ranks are those of the sampled elements. Sums
// them like the accepted class: rings from any start, trees, groups. Deterministic.
RankGrowth GrowReduction(const ReductionCase& c, const ReductionReplay& replay);

// Predicts the bias without sampled values: addends c (1 + 0.3 normal) with log-normal c, in a ring
// of this dtype.
GrownBias PredictRing(DType dtype, int ranks);

}  // namespace plumbline::analysis
