// Where a job stands still, and who holds it: a graph of who waits for whom.
//
// A rank's head is its oldest pending operation. It waits for each member that has not launched it,
// or holds it pending behind an older one; a send or receive waits for the peer named in it, unless
// that peer's head is the counterpart (numbers are not compared). A graph over any pending
// collective would name false ranks, because ranks run ahead by different depths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/flight/recorder.h"

namespace plumbline::flight {

struct Frozen {
  enum class Kind {
    kNothingPending,
    kDifferentTimes,  // a collective that ends for all is done on one member and not begun on
                      // another
    kMismatched,      // members hand in different operations, shapes or dtypes, begin two
                      // operations in different orders, or all send and nobody receives
    kNotLaunched,     // ranks that others wait for and that hold nothing pending, dump or none
    kNotCompleted,    // ranks that hold pending what a peer has completed
    kNotStarted,      // every rank has launched one operation, and the devices of a few have not
                      // begun it: what they do before it holds them
    kAllAtOne,        // every rank waits in one operation: nobody is named
    kNobodyWaits,     // one holds pending what a peer has completed, and nobody waits for it
    kFewDumps,        // more ranks left no dump than did, and any of them may hold the others
    kUnexplained
  };
  Kind kind = Kind::kNothingPending;
  std::vector<uint32_t> ranks;    // the culprits, ascending
  std::vector<uint32_t> waiting;  // ranks with something pending that are none of them, ascending
  // Ranks that others wait for and of which there is no dump: culprits only where no rank with a
  // dump is one.
  std::vector<uint32_t> without_dump;
  Op op;             // at which it stands
  std::string what;  // mismatched: "operation", "dtype", "shape", "order" or "direction"
  std::string minority, majority;  // mismatched: what they hand in
  bool tie = false;
};

Frozen FindFrozen(const Job& job);

}  // namespace plumbline::flight
