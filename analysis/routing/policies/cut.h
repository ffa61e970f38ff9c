// A cut of a queue into contiguous pieces, each first come first served with a capacity of its own:
// what refusals look like where the real pools were smaller than the recorded ones.
#pragma once

#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::rules {

// Some cut gives the refusals (piece: no admission after a refusal at one expert; refusing experts
// hold one number of at least 1, none more).
struct QueueCut {
  bool fits = false;
  // log2 of the cuts with as few pieces, and of the capacities they could have had.
  double free_bits = 0;
  // log2 of the kept sets that the refusing cells could have had.
  double refusal_bits = 0;
  // There are fewer such cuts than kept sets: that one of them fits is no accident.
  bool explains() const { return fits && free_bits < refusal_bits; }
};

// The queue whose cut leaves least free.
QueueCut FindCut(const RoutingCase& c, const Saturation& s, const std::vector<TimeQueue>& queues);

}  // namespace plumbline::rules
