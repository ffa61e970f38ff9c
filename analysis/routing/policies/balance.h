// Choices that own scores do not explain but a price per expert does: balanced assignment (auction,
// optimal transport) solves for such prices over the whole batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::rules {

struct Balance {
  bool equal = false;     // every expert of a pool holds the same number of tokens
  double equal_bits = 0;  // that this is no accident of independent, uniform choices
  bool priced = false;    // one price an expert explains every choice of a pool
  double price_bits = 0;  // against random choices, less what fitting the prices could do
  double epsilon = 0;     // how far below the best a choice was allowed to be
  bool sinkhorn = false;  // the prices of an optimal transport of these rows explain every choice,
                          // those of 32 resamples of the rows do not
  bool tabular = false;   // a function of position or row could have made the choices
  // A stored bias that balances this very text evenly would leave the same choices. Excluded where
  // the bias was recorded and does not explain them, or the configuration names the assignment.
  bool bias_possible = true;
  bool found() const;
  // Prices explain the choices, and a stored bias may be all they are.
  bool as_a_bias() const;
};

// Needs c.ordered(); pools as recorded, or the whole call. Tied and non-finite rows are left out.
Balance FindBalance(const RoutingCase& c);

}  // namespace plumbline::rules
