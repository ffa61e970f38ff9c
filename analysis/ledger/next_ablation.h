// Which runs would narrow the estimate most.
#pragma once

#include <string>
#include <vector>

#include "analysis/ledger/estimate.h"

namespace plumbline::ledger {

struct NextRuns {
  enum class Kind { kPair, kBaseline, kStack };
  Kind kind = Kind::kPair;
  std::string name;   // of the multiplier, of a pair
  double scale = 0;   // FLOPs of a run
  double flops = 0;   // of all that is to be run
  double before = 0;  // variance of the product (of the stack, where it is a stack's) ...
  double after = 0;   // ... and with these runs too, should they say what the others said
  double drop() const { return before - after; }
};

// One more pair of each kept multiplier, at each of its scales and at the largest that any change
// was ablated at; one more baseline run at each scale; one more pair of the stack (of the first
// pair of a stack, `before` is the product's). Those that narrow, by the drop, the largest first.
// The noise is held: that more runs tell it better is not counted.
std::vector<NextRuns> RankNextRuns(const Ledger& ledger, const Allowances& allowances,
                                   const Estimate& estimate);

}  // namespace plumbline::ledger
