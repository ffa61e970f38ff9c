// Finds where a job is blocked and by which ranks, from a graph of waits.
//
// A rank's head is its oldest pending operation. It waits for each member that has not launched it,
// or that has it pending after an older one. A send or receive waits for its named peer, unless
// that peer's head is the counterpart (numbers are not compared). A graph over any pending
// collective would name wrong ranks, because ranks run ahead by different depths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/flight/recorder.h"

namespace plumbline::flight {

struct Frozen {
  enum class Kind {
    kNothingPending,
    kDifferentTimes,  // a collective that ends for all is completed on one member and not launched
                      // on another
    kMismatched,  // members pass in different operations, shapes or dtypes, begin two operations in
                  // different orders, or all send and none receives
    kNotLaunched,   // ranks that others wait for and that have nothing pending, with or without a
                    // dump
    kNotCompleted,  // ranks with an operation pending that a peer has completed
    kNotStarted,  // every rank has launched one operation, but the devices of a few have not begun
                  // it: their earlier work blocks them
    kAllAtOne,    // every rank waits in one operation; no rank is named
    kNoneWaits,   // one has pending what a peer has completed, but no rank waits for it
    kFewDumps,    // more ranks left no dump than did, and any of them may block the others
    kUnexplained
  };
  Kind kind = Kind::kNothingPending;
  std::vector<uint32_t> ranks;    // the culprits, ascending
  std::vector<uint32_t> waiting;  // other ranks with something pending, ascending
  // Ranks that others wait for and that left no dump. They are culprits only if no rank with a dump
  // is one.
  std::vector<uint32_t> without_dump;
  Op op;             // the operation in which it is blocked
  std::string what;  // mismatched: "operation", "dtype", "shape", "order" or "direction"
  std::string minority, majority;  // mismatched: the values that they pass in
  bool tie = false;
};

Frozen FindFrozen(const Job& job);

}  // namespace plumbline::flight
