// Tests for token buckets: an expert takes a token while its budget, which refills over time, holds
// one. Rates and sizes are stored. Experts with a constant high load then take equal numbers, as
// under a capacity.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::analysis {

// Returns true if under some clock (places in a queue, choices of the expert, positions of a
// sequence with a separate bucket) every refusing cell has a rate and a size that reproduce its
// choices, and there are fewer of these than kept sets. In a large call, tests the first cells
// only.
bool BucketsFit(const RoutingCase& c, const Saturation& s, const std::vector<TimeQueue>& queues);

}  // namespace plumbline::analysis
