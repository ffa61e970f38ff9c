// Contracts that a run is compared with: reconstructed sums (analysis/sums), replayed over the
// sampled elements of its products.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/product/case.h"
#include "analysis/sums/sums.h"

namespace plumbline::analysis {

struct HeldContract {
  sums::Contract contract;
  sums::SumModel model;
};

// Result of a contract's sum on a product's elements.
struct HeldMatches {
  int32_t samples = 0;  // judged: finite factors
  int32_t matches = 0;
  int first_miss = -1;  // sample number; its two results:
  double held = 0;
  double found = 0;
};

class HeldContracts {
 public:
  HeldContracts() = default;
  // Parses concatenated contract files. Returns InvalidArgument if they are invalid, or if one has
  // nothing that can be replayed over a product.
  static absl::StatusOr<HeldContracts> Parse(const std::string& text);

  bool empty() const { return held_.empty(); }
  // Returns the contract for products of this length and these dtypes, or null.
  const HeldContract* For(const MatmulCase& c) const;

 private:
  std::vector<HeldContract> held_;
};

HeldMatches ReplayContract(const HeldContract& held, const MatmulCase& c);

}  // namespace plumbline::analysis
