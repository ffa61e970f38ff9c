// The loss of unchanged runs as a function of compute, L = E + exp(a) C^-alpha, and the compute
// that a difference of losses is worth. E is not known, so every result is a mean over candidates
// of E.
#pragma once

#include <vector>

#include "calculators/ledger/cells.h"

namespace plumbline::ledger {

struct Curve {
  double floor = 0;  // E, nats
  double alpha = 0, alpha_error = 0;
  double weight = 0;  // all weights sum to 1
};

struct Baseline {
  std::vector<Curve> curves;    // those of weight > 0; empty if no candidate fits
  double floor = 0, alpha = 0;  // means

  // Returns ln of the compute that the change saves.
  double Worth(const Cell& cell) const;
  // Return G = d(ln compute) / d(ln loss) at a loss of exp(ln_loss): for one curve, and the mean.
  static double GainOf(const Curve& curve, double ln_loss);
  double Gain(double ln_loss) const;
  // Returns the relative error r of such a value that the curve causes: E by the spread of G at
  // exp(ln_loss), and alpha.
  double RelativeError(double ln_loss) const;
};

// `variance` is that of one run's ln loss. `lowest` is a loss that was reached; no floor lies above
// it.
Baseline FitBaseline(const std::vector<Run>& runs, const std::vector<size_t>& of, double variance,
                     double lowest);

// Returns the number of different scales of the runs.
size_t ScalesOf(const std::vector<Run>& runs, const std::vector<size_t>& of);

}  // namespace plumbline::ledger
