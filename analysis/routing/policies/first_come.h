// First come first served in its variants: would this queue have refused exactly these choices?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"
#include "analysis/routing/policies/stored.h"

namespace plumbline::rules {

// A clean policy that gives every known choice as recorded.
struct CleanReplay {
  bool fits = false;
  double bits =
      0;  // log2 of how many other kept sets were possible, less log2 of the variants tried
  std::string how;    // "batch-major order", "batch-major order in chunks of 256 rows", ...
  std::string order;  // the queue's name
};

struct FirstCome {
  CleanReplay best;                       // of all variants
  std::vector<std::string> exact_orders;  // in which one queue over the pools as taken fits
  bool searched = true;                   // false: not every chunking could be tried
};

// First come first served over the pools as taken; over the first r choices only; with a capacity
// per choice rank; and, where pools are not recorded row by row, over each equal chunking of the
// rows (at most 1,024 chunks, the short one first or last) and sequence by sequence.
FirstCome ReplayFirstCome(const RoutingCase& c, const std::vector<TimeQueue>& queues);

// Where each expert closes along a queue that gives every choice over the pools as taken: behind
// its last admission of a pool, and no later than its first refusal.
StoredNumbers ClosingPlaces(const RoutingCase& c, const TimeQueue& queue);

// The share of known choices that one queue over the pools as taken gives, the queue that gives
// most.
double BestQueueShare(const RoutingCase& c, const Saturation& s,
                      const std::vector<TimeQueue>& queues);

// A cut of the rows into pieces of one capacity, to judge other policies by.
struct Chunking {
  std::vector<int32_t> pool;  // [T] the piece of each row
  int32_t pools = 0;
  std::string how;
};

// Chunkings (as above) in which every refusing cell holds one number, and none more: the pools that
// a recording without pool_id may have had. `tried` gets how many were looked at. At most `limit`.
std::vector<Chunking> ConsistentChunkings(const RoutingCase& c,
                                          const std::vector<TimeQueue>& queues, size_t limit,
                                          int64_t* tried);

}  // namespace plumbline::rules
