// Rows of scores that repeat up to a small noise, as those of a list of words or of one prompt do.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/routing/call/case.h"

namespace plumbline::analysis {

// Returns true if at least half of the rows have a neighbour nearer than a twentieth of the usual
// distance between rows (Euclidean, over the experts). An earlier batch of such data has nearly the
// same statistics, so they may have been stored. At most 128 rows, at even distances, are compared
// with at most 512. `rows` has row numbers with finite scores; fewer than 2 give false. Pure,
// thread-safe.
bool RowsNearlyRepeat(const RoutingCase& c, const std::vector<int32_t>& rows);

}  // namespace plumbline::analysis
