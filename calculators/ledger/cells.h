// One scale of one comparison: the runs with and without a change that can be compared.
#pragma once

#include <utility>
#include <vector>

#include "calculators/ledger/input.h"

namespace plumbline::ledger {

struct Cell {
  double flops = 0;
  std::vector<std::pair<size_t, size_t>> pairs;  // (with, without) of one seed; empty if unpaired
  std::vector<size_t> with, without;             // the runs used; if paired, in the pairs' order
  double ln_with = 0, ln_without = 0;            // mean ln loss
  double squares = 0;  // about the means; for pairs, half of those of the differences
  int freedom = 0;     // degrees of freedom of `squares`
  // Variance of ln_without - ln_with in units of one run's variance: 2 / n for n pairs.
  double spread() const;
};

// Returns the scales that both arms have, in ascending order. If some seeds pair, seeds of only one
// arm are ignored.
std::vector<Cell> CellsOf(const std::vector<Run>& runs, const Arms& arms);

}  // namespace plumbline::ledger
