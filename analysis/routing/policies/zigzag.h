// The order of rows in a context-parallel layout that balances causal attention.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::rules {

// Sequences numbered in the order of their ids, and their lengths.
struct Sequences {
  std::vector<int32_t> number;  // [T]
  std::vector<int64_t> length;  // by number
  int64_t longest = 0;
};

// Needs c.ordered().
Sequences NumberSequences(const RoutingCase& c);

// A row's place in the gathered order of a context-parallel layout that balances causal attention:
// of 2n chunks of a sequence, rank r holds the r-th from either end. Flattened rank by rank.
double ZigzagPlace(const RoutingCase& c, const Sequences& s, int32_t ranks, bool by_position,
                   size_t row);

// In no pool does a later token of a sequence come before an earlier one: a queue in this order
// looks at nothing later (a context-parallel rank's own shard, whose rows are in time order).
bool ZigzagKeepsTime(const RoutingCase& c, const Sequences& s, int32_t ranks, bool by_position);

}  // namespace plumbline::rules
