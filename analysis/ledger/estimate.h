// The whole estimate of a ledger: noise, the baseline's curve, each multiplier, their product, the
// stack. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/ledger/multipliers.h"

namespace plumbline::ledger {

// The scale of ablation from which on a change counts as measured near its use: target / 5.
inline constexpr double kNearTarget = 5;
inline constexpr double kNinety = 1.645;  // standard deviations of a 90 % interval, either side

struct MultiplierEstimate {
  Worth worth;
  std::vector<Cell> cells;
  double sd = 0;                 // of worth.y
  double s = 0;                  // ln multiplier, once selection is allowed for
  double decades_to_target = 0;  // from its largest scale, at least 0
};

struct Product {
  double ln = 0;  // M
  size_t factors = 0;
  double seeds_variance = 0, all_variance = 0;
  // Of ln loss: the one bias, shared by all ablations, that alone would explain the product. NaN
  // without factors.
  double shared_bias = 0;
};

struct LeaveOutEstimate {
  std::string name;
  double ln = 0, sd = 0;
  double detectable = 0;  // ln multiplier that it would show nine times in ten
};

struct StackEstimate {
  double flops = 0;
  double ln = 0, sd = 0;
  double claimed = 0;                                        // sum of the kept ones' ln claimed
  double overstated() const { return (claimed - ln) / sd; }  // in standard deviations
  std::vector<LeaveOutEstimate> leave_outs;
};

struct Estimate {
  double noise = 0;  // sigma: of one run's ln loss
  int freedom = 0;   // of it, besides the assumed four
  Baseline baseline;
  double relative_error = 0;  // r, at the largest ablated scale
  double gain = 0;            // G there
  double largest_scale = 0;   // that scale, FLOPs
  double ln_loss = 0;         // of runs without a change, there
  std::vector<MultiplierEstimate> multipliers;
  std::vector<double> covariance;  // of the y
  Product product;
  std::optional<StackEstimate> stack;
};

// InvalidArgument, in words: a baseline of fewer than two scales or whose loss falls with no
// exponent within 0.02 to 0.6, arms without a scale in common, no multiplier. `noise`: instead of
// the estimate of it.
absl::StatusOr<Estimate> EstimateLedger(const Ledger& ledger, const Allowances& allowances,
                                        std::optional<double> noise = std::nullopt);

// The product as if the multipliers marked in `out` were in no ledger.
Product ProductWithout(const Ledger& ledger, const Allowances& allowances, const Estimate& estimate,
                       const std::vector<bool>& out);

}  // namespace plumbline::ledger
