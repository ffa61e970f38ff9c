// Detects choices that a token's own scores do not explain but a price per expert does. Balanced
// assignment (auction, optimal transport) solves for such prices over the whole batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

struct Balance {
  bool equal = false;     // every expert of a pool holds the same number of tokens
  double equal_bits = 0;  // against independent, uniform choices
  bool priced = false;    // one price per expert explains every choice of a pool
  double price_bits = 0;  // against random choices, less the freedom of the fitted prices
  double epsilon = 0;     // how far below the best a choice was allowed to be
  bool sinkhorn = false;  // the prices of an optimal transport of these rows explain every choice,
                          // and those of 32 resamples of the rows do not
  bool tabular = false;   // a function of the position or the row could have made the choices
  // A stored bias that balances exactly this text would leave the same choices. False if the bias
  // was recorded and does not explain them, or if the configuration names the assignment.
  bool bias_possible = true;
  bool found() const;
  // True if prices explain the choices, but may be only a stored bias.
  bool as_a_bias() const;
};

// Requires c.ordered(). Uses pools as recorded, or the whole call. Tied and non-finite rows are
// ignored.
Balance FindBalance(const RoutingCase& c);

}  // namespace plumbline::analysis
