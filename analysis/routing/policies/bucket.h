// Token buckets: an expert takes a token while its budget, which fills again as time goes by, holds
// one. Stored rates and sizes; hot experts that are always asked take equal numbers, as under a
// capacity.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::rules {

// Under some clock (places in a queue, choices of the expert, positions of a sequence with a bucket
// of its own) every refusing cell has a rate and a size that give its choices as recorded, and
// there are fewer of these than kept sets. Of a large call the first cells are looked at.
bool BucketsFit(const RoutingCase& c, const Saturation& s, const std::vector<TimeQueue>& queues);

}  // namespace plumbline::rules
