// The whole estimate of a ledger: noise, the baseline's curve, each multiplier, their product, the
// stack. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calculators/ledger/multipliers.h"

namespace plumbline::ledger {

// A change counts as measured near its use if its ablation reaches this scale: target / 5.
inline constexpr double kNearTarget = 5;
inline constexpr double kNinety = 1.645;  // standard deviations of a 90 % interval, on either side

struct MultiplierEstimate {
  Worth worth;
  std::vector<Cell> cells;
  double sd = 0;                 // of worth.y
  double s = 0;                  // ln multiplier, corrected for selection
  double decades_to_target = 0;  // from its largest scale, at least 0
};

struct Product {
  double ln = 0;  // M
  size_t factors = 0;
  double seeds_variance = 0, all_variance = 0;
  // The bias of ln loss that would explain the product alone, if all ablations shared it. NaN
  // without factors.
  double shared_bias = 0;
};

struct LeaveOutEstimate {
  std::string name;
  double ln = 0, sd = 0;
  double detectable = 0;  // ln multiplier that it would detect nine times in ten
};

struct StackEstimate {
  double flops = 0;
  double ln = 0, sd = 0;
  double claimed = 0;                                        // sum of the claimed ln multipliers of
                                                             // the kept changes
  double overstated() const { return (claimed - ln) / sd; }  // in standard deviations
  std::vector<LeaveOutEstimate> leave_outs;
};

struct Estimate {
  double noise = 0;  // sigma: of one run's ln loss
  int freedom = 0;   // without the prior's four
  Baseline baseline;
  double relative_error = 0;  // r, at the largest ablated scale
  double gain = 0;            // G there
  double largest_scale = 0;   // that scale, FLOPs
  double ln_loss = 0;         // ln loss of runs without a change at that scale
  std::vector<MultiplierEstimate> multipliers;
  std::vector<double> covariance;  // covariance of the y
  Product product;
  std::optional<StackEstimate> stack;
};

// Returns InvalidArgument with a text if the baseline has fewer than two scales, if its loss falls
// with no exponent within 0.02 to 0.6, if arms have no common scale, or if there is no multiplier.
// If `noise` is given, it replaces its estimate.
absl::StatusOr<Estimate> EstimateLedger(const Ledger& ledger, const Allowances& allowances,
                                        std::optional<double> noise = std::nullopt);

// Returns the product without the multipliers marked in `out`.
Product ProductWithout(const Ledger& ledger, const Allowances& allowances, const Estimate& estimate,
                       const std::vector<bool>& out);

}  // namespace plumbline::ledger
