// The result of each ablation for its change, and the correlation of the ablations' errors.
#pragma once

#include <utility>
#include <vector>

#include "calculators/ledger/baseline.h"

namespace plumbline::ledger {

// One scale of an ablation.
struct ScaleWorth {
  double flops = 0;
  double worth = 0;    // Y, ln of compute
  double gain = 0;     // G
  double share = 0;    // q of the mean over scales; all sum to 1
  double decades = 0;  // below the largest scale
};

struct Worth {
  std::vector<ScaleWorth> scales;  // ascending
  double y = 0;                    // the mean over scales, ln of compute
  // y is linear in the runs' ln losses: coefficients by run, ascending.
  std::vector<std::pair<size_t, double>> coefficients;

  const ScaleWorth& largest() const { return scales.back(); }
};

// `cells` must have at least one cell, ascending (CellsOf). `variance` is that of one run's ln
// loss.
Worth WorthOf(const std::vector<Cell>& cells, const Baseline& baseline, double variance,
              const Allowances& allowances);

// Returns the covariance of the y: [n, n], C order. Shared runs contribute the noise of
// seeds; the allowances contribute errors that ablations share.
std::vector<double> CovarianceOf(const std::vector<Worth>& worths, double variance,
                                 const Allowances& allowances);

// Returns the sum of a_r * b_r over the runs in both.
double SharedSquares(const std::vector<std::pair<size_t, double>>& a,
                     const std::vector<std::pair<size_t, double>>& b);

}  // namespace plumbline::ledger
