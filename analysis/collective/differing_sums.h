// Tests whether results that differ between ranks are nevertheless results of one all-reduce.
#pragma once

#include <optional>

#include "analysis/collective/case/case.h"

namespace plumbline::analysis {

// Results of one call that differ between ranks, however few bits agree, if every one of them is
// the sum of all inputs within its rounding. Otherwise nullopt: ranks may keep results of their own
// by design (averages of some ranks, the parts of a scatter, values that were never reduced).
//
// A result y_r = (1 + f) s + e_r, with a bias |f| < 0.1 that is that of the first rank within 5
// standard errors, is accepted if it is within the bound of sums for every element, and e_r does
// not depend on single ranks. Let d_j be rank j's deviation from the mean over ranks. A result over
// fewer ranks, or with other weights, has e_r = sum_j a_j d_j, so that e_r is at least as large as
// some d_j, or the squared correlations of e_r with all d_j add up to 1. So either the root mean
// square of e_r is below a quarter of that of every d_j (`exact` is then set), or these squared
// correlations add up to less than half, and to no more than chance allows.
struct DifferingSums {
  OutputSplit split;
  bool exact = false;
};
std::optional<DifferingSums> SplitSums(const JoinedReduction& joined);

// Returns the finding on results that differ. `sums` is set if SplitSums found them.
v1::Verdict ResultsDiffer(const JoinedReduction& joined, const OutputSplit& split,
                          const DifferingSums* sums);

}  // namespace plumbline::analysis
