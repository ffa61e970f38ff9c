// What would become of a collective's sums over more ranks: simulated, not measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/collective/errors.h"
#include "analysis/collective/replay/replay.h"
#include "base/archive.h"

namespace plumbline::rules {

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
  std::vector<GrownBias> tried;  // N doubled up to 2,048, until the budget is passed
  // The number of ranks at which the bias first passes the budget; 0: not up to the last tried.
  int breaks_at() const;
  void Persist(Archive& a) { a(tried); }
};

// Addends with the mean and the deviation over ranks of the sampled elements, normal, summed as the
// accepted class sums: rings from any start, trees, groups. Deterministic.
RankGrowth GrowReduction(const ReductionCase& c, const ReductionReplay& replay);

// From a call alone: addends c (1 + 0.3 normal), c log-normal, in a ring of that dtype.
GrownBias PredictRing(DType dtype, int ranks);

}  // namespace plumbline::rules
