// How the loss of unchanged runs falls with compute, L = E + exp(a) C^-alpha, and what a difference
// of losses is worth in compute by it. E is not known: everything is a mean over candidates.
#pragma once

#include <vector>

#include "analysis/ledger/cells.h"

namespace plumbline::ledger {

struct Curve {
  double floor = 0;  // E, nats
  double alpha = 0, alpha_error = 0;
  double weight = 0;  // all weights add up to 1
};

struct Baseline {
  std::vector<Curve> curves;    // those of weight > 0; empty: no candidate fits
  double floor = 0, alpha = 0;  // means

  // ln of the compute that the change saves.
  double Worth(const Cell& cell) const;
  // d(ln compute) / d(ln loss) where the loss is exp(ln_loss), G; of one curve, and the mean.
  static double GainOf(const Curve& curve, double ln_loss);
  double Gain(double ln_loss) const;
  // Relative error of such a worth that comes from the curve, r: of E by the spread of G at
  // exp(ln_loss), and of alpha.
  double RelativeError(double ln_loss) const;
};

// `variance`: of one run's ln loss. `lowest`: a loss that was reached; no floor lies above it.
Baseline FitBaseline(const std::vector<Run>& runs, const std::vector<size_t>& of, double variance,
                     double lowest);

// Scales that the runs have.
size_t ScalesOf(const std::vector<Run>& runs, const std::vector<size_t>& of);

}  // namespace plumbline::ledger
