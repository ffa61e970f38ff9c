// Ranks the runs that would narrow the estimate most.
#pragma once

#include <string>
#include <vector>

#include "calculators/ledger/estimate.h"

namespace plumbline::ledger {

struct NextRuns {
  enum class Kind { kPair, kBaseline, kStack };
  Kind kind = Kind::kPair;
  std::string name;   // name of the multiplier, for a pair
  double scale = 0;   // FLOPs of a run
  double flops = 0;   // FLOPs of all runs together
  double before = 0;  // variance of the product (of the stack, for a pair of the stack)
  double after = 0;   // the same with these runs too, if they confirm the others
  double drop() const { return before - after; }
};

// Ranks: one more pair of each kept multiplier, at each of its scales and at the largest ablated
// scale of any change; one more baseline run at each scale; one more pair of the stack (for the
// first pair of a stack, `before` is the product's). Returns those that narrow, by the drop, the
// largest first. The noise is held constant, although more runs would estimate it better.
std::vector<NextRuns> RankNextRuns(const Ledger& ledger, const Allowances& allowances,
                                   const Estimate& estimate);

}  // namespace plumbline::ledger
