// A stored table of positions: who is refused by which expert is the same in every sequence.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::rules {

struct PositionTable {
  // Position and expert decide every fate, at least 8 of them that another sequence had set before.
  bool fits = false;
  // Against a table: -log2 of the chance that what it let through came to the capacity, in each
  // full cell; where a queue may have refused the last ones, to the capacity or up to as many more.
  // Who asks an expert varies from sequence to sequence, position by position; where it does not
  // vary, what is let through is no accident.
  double count_bits = 0;
};

PositionTable FindTable(const RoutingCase& c, const Saturation& s,
                        const std::vector<TimeQueue>& queues);

}  // namespace plumbline::rules
