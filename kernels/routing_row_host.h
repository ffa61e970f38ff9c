// The part of the host twin that reads the scores: compiled for the widest vectors that the
// processor has. Same bits on each, since no operation is fused or reordered.
#pragma once

#include <cstdint>

#include "kernels/routing_plan.h"

namespace plumbline {

// Reads row `row` into x (room for kMaxExperts), scans it and makes its own choice.
RowScale ReadRow(const RoutingPlan& plan, int64_t row, const double* bias, double* x,
                 RouterScratch* scratch, RouterChoice* choice);

}  // namespace plumbline
