// Contracts that a run is held to: reconstructed sums (analysis/sums), replayed over the sampled
// elements of its products.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/product/case.h"
#include "analysis/sums/sums.h"

namespace plumbline::rules {

struct HeldContract {
  sums::Contract contract;
  sums::SumModel model;
};

// What the contract's sum makes of a product's elements.
struct HeldMatches {
  int32_t samples = 0;  // judged: finite factors
  int32_t matches = 0;
  int first_miss = -1;  // sample; its results:
  double held = 0;
  double found = 0;
};

class HeldContracts {
 public:
  HeldContracts() = default;
  // `text`: contract files one after the other. InvalidArgument: what is wrong with them, or that
  // one speaks of nothing that can be replayed over a product.
  static absl::StatusOr<HeldContracts> Parse(const std::string& text);

  bool empty() const { return held_.empty(); }
  // The contract of products of this length and these dtypes; null: there is none.
  const HeldContract* For(const MatmulCase& c) const;

 private:
  std::vector<HeldContract> held_;
};

HeldMatches ReplayContract(const HeldContract& held, const MatmulCase& c);

}  // namespace plumbline::rules
