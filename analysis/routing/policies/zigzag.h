// Computes the order of rows in a context-parallel layout that balances causal attention.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

// Sequences numbered in the order of their ids, and their lengths.
struct Sequences {
  std::vector<int32_t> number;  // [T]
  std::vector<int64_t> length;  // by number
  int64_t longest = 0;
};

// Requires c.ordered().
Sequences NumberSequences(const RoutingCase& c);

// Returns a row's place in the gathered order of a context-parallel layout that balances causal
// attention. Each sequence has 2n chunks, and rank r holds the r-th chunk from either end. The
// order is flattened rank by rank.
double ZigzagPlace(const RoutingCase& c, const Sequences& s, int32_t ranks, bool by_position,
                   size_t row);

// Returns true if in no pool a later token of a sequence comes before an earlier one. A queue in
// this order sees nothing later (a context-parallel rank's own shard, whose rows are in time
// order).
bool ZigzagKeepsTime(const RoutingCase& c, const Sequences& s, int32_t ranks, bool by_position);

}  // namespace plumbline::analysis
