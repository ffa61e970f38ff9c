// Tests whether a queue can be cut into contiguous pieces, each first come first served with its
// own capacity. Refusals look like this if the real pools were smaller than the recorded ones.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::analysis {

// Whether some cut explains the refusals. In each piece, an expert admits nothing after a refusal.
// All refusing experts hold one number of at least 1, and no other expert holds more.
struct QueueCut {
  bool fits = false;
  // log2 of the number of cuts with as few pieces, and of the capacities that they could have.
  double free_bits = 0;
  // log2 of the number of kept sets that the refusing cells could have.
  double refusal_bits = 0;
  // True if there are fewer such cuts than kept sets, so that a fit is not a coincidence.
  bool explains() const { return fits && free_bits < refusal_bits; }
};

// Returns the cut of the queue that leaves the fewest free bits.
QueueCut FindCut(const RoutingCase& c, const Saturation& s, const std::vector<TimeQueue>& queues);

}  // namespace plumbline::analysis
