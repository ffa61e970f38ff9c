// One scale of one comparison: the runs with and without a change that can be held against each
// other.
#pragma once

#include <utility>
#include <vector>

#include "analysis/ledger/input.h"

namespace plumbline::ledger {

struct Cell {
  double flops = 0;
  std::vector<std::pair<size_t, size_t>> pairs;  // (with, without) of one seed; empty: unpaired
  std::vector<size_t> with, without;             // the runs used; of pairs, in their order
  double ln_with = 0, ln_without = 0;            // mean ln loss
  double squares = 0;  // about the means; of pairs half of those of the differences
  int freedom = 0;     // of the squares
  // Variance of ln_without - ln_with in units of one run's: 2 / n of n pairs.
  double spread() const;
};

// The scales that both arms have, in ascending order. Seeds that one arm alone has are left out
// where others pair.
std::vector<Cell> CellsOf(const std::vector<Run>& runs, const Arms& arms);

}  // namespace plumbline::ledger
