// Replays first come first served in its variants: tests whether a queue would have refused exactly
// these choices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"
#include "analysis/routing/policies/stored.h"

namespace plumbline::analysis {

// A clean policy that gives every known choice as recorded.
struct CleanReplay {
  bool fits = false;
  double bits =
      0;  // log2 of the number of other possible kept sets, less log2 of the variants tried
  std::string how;    // "batch-major order", "batch-major order in chunks of 256 rows", ...
  std::string order;  // the queue's name
};

struct FirstCome {
  CleanReplay best;                       // of all variants
  std::vector<std::string> exact_orders;  // orders in which one queue over the recorded pools fits
  bool searched = true;                   // false if not every chunking could be tried
};

// Replays first come first served over the pools; over the first r choices only; and with a
// capacity per choice rank. If pools are not recorded row by row, also over each equal chunking of
// the rows (at most 1,024 chunks, the short one first or last) and sequence by sequence.
FirstCome ReplayFirstCome(const RoutingCase& c, const std::vector<TimeQueue>& queues);

// Returns where each expert closes along a queue that gives every choice: after its last admission
// of a pool, and at the latest at its first refusal.
StoredNumbers ClosingPlaces(const RoutingCase& c, const TimeQueue& queue);

// Returns the largest share of known choices that one queue over the pools gives.
double BestQueueShare(const RoutingCase& c, const Saturation& s,
                      const std::vector<TimeQueue>& queues);

// A cut of the rows into pieces of one capacity, used to judge other policies.
struct Chunking {
  std::vector<int32_t> pool;  // [T] piece of each row
  int32_t pools = 0;
  std::string how;
};

// Returns at most `limit` chunkings (as above) in which all refusing cells hold one number and no
// cell holds more. A recording without pool_id may have had these pools. Sets `tried` to the number
// of chunkings tested.
std::vector<Chunking> ConsistentChunkings(const RoutingCase& c,
                                          const std::vector<TimeQueue>& queues, size_t limit,
                                          int64_t* tried);

}  // namespace plumbline::analysis
