// Replays the top C of a 0/1 mask as a library on a CPU selects it: which candidates of a full
// expert are kept then depends on the positions of all of them, later ones included.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/policies.h"

namespace plumbline::analysis {

struct LibraryTies {
  double bits = 0;    // log2 of the ways to keep as many of each full expert's candidates
  int64_t cells = 0;  // refusing cells; 0 if the selection does not give every refusal
};

// torch.topk on a CPU: a partial sort if 64 C <= T, otherwise a selection (nth_element) of pairs of
// value and row. Requires c.ordered() and no contradiction of the saturation.
LibraryTies ReplayTopOfMask(const RoutingCase& c, const Saturation& s,
                            const std::vector<TimeQueue>& queues);

}  // namespace plumbline::analysis
