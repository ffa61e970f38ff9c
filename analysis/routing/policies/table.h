// Tests for a stored table of positions: each expert refuses the same positions in every sequence.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::analysis {

struct PositionTable {
  // Position and expert decide every fate, including at least 8 fates that another sequence had
  // fixed before.
  bool fits = false;
  // Evidence against a table: -log2 of the probability that the admitted number equals the capacity
  // in each full cell. If a queue may have refused the last ones, it may exceed the capacity by as
  // many. The choices of an expert vary from sequence to sequence at each position. Where they do
  // not vary, the admitted number is not random.
  double count_bits = 0;
};

PositionTable FindTable(const RoutingCase& c, const Saturation& s,
                        const std::vector<TimeQueue>& queues);

}  // namespace plumbline::analysis
