// Queues in time order: the orders in which a causal router may have taken its rows. Every replay
// of first come first served uses these.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

// A row on its way through a queue.
struct QueuedRow {
  int32_t place = 0;
  bool judged = false;  // padding uses capacity, but its place in the queue is not known
  std::span<const Choice> choices;
};

struct TimeQueue {
  std::string name;            // "rows", "batch-major" or "seq-major"
  std::vector<int32_t> order;  // rows by (pool, place)

  QueuedRow At(const RoutingCase& c, size_t place) const {
    const int32_t token = order[place];
    return {static_cast<int32_t>(place), c.judged(token), c.ChoicesOf(token)};
  }
};

// The rows of one pool along a queue, without rows that have no choices. Borrows both arguments.
class PoolRows {
 public:
  PoolRows(const RoutingCase& c, const TimeQueue& queue) : c_(&c), queue_(&queue) {}
  void Add(size_t place) { places_.push_back(static_cast<int32_t>(place)); }
  size_t size() const { return places_.size(); }
  QueuedRow operator[](size_t i) const { return queue_->At(*c_, static_cast<size_t>(places_[i])); }
  // Calls visit(row) along the queue. Stops and returns false at the first false.
  template <typename Visit>
  bool All(Visit visit) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (!visit((*this)[i])) return false;
    }
    return true;
  }

 private:
  const RoutingCase* c_;
  const TimeQueue* queue_;
  std::vector<int32_t> places_;
};

std::vector<PoolRows> RowsOfPools(const RoutingCase& c, const TimeQueue& queue);

// Returns the rows as stored (if each sequence's positions rise), batch-major (sequence by
// sequence) and seq-major (position by position), pool by pool. Equal orders are listed once, in
// that order of preference. Requires c.ordered().
std::vector<TimeQueue> TimeQueues(const RoutingCase& c);

// Return all rows by position, and by (sequence, position), over all pools. Require c.ordered().
std::vector<int32_t> RowsByPosition(const RoutingCase& c);
std::vector<int32_t> RowsBySequence(const RoutingCase& c);

}  // namespace plumbline::analysis
