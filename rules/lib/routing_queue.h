// Queues in time order: the orders in which a causal router may have taken its rows. Every replay
// of first come first served runs over these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/lib/routing_case.h"

namespace plumbline::rules {

// One known choice on its way through a queue.
struct Offer {
  int32_t place;   // of its row in TimeQueue::order
  int32_t choice;  // index into RoutingCase::choices
  int32_t token;
  int16_t expert;
  int16_t rank;  // as Choice::rank
  bool kept;
  bool judged;  // padding takes room; where in the queue it stood is not known
};

struct TimeQueue {
  std::string name;            // "rows", "batch-major" or "seq-major"
  std::vector<Offer> offers;   // by (pool, place)
  std::vector<int32_t> order;  // rows by (pool, place)
};

// The rows as stored (where each sequence's positions rise), batch-major (sequence by sequence) and
// seq-major (position by position), pool by pool; orders that coincide are listed under one name,
// in that order of preference. Needs c.ordered().
std::vector<TimeQueue> TimeQueues(const RoutingCase& c);

}  // namespace plumbline::rules
