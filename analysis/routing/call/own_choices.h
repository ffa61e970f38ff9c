// The choices by every row's own scores, for a whole recorded call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/sample/sample.h"
#include "base/router/scores.h"

namespace plumbline::analysis {

class OwnChoices {
 public:
  struct Choice {
    bool finite = false;  // if false, there is no choice
    bool tied = false;
    bool rank_order_known = false;
    std::span<const int16_t> expert;  // [k] in rank order
  };

  // `scores` has shape [tokens, rule.experts] and was checked. `bias` has shape [rule.experts] and
  // is read if rule.has_bias. For a call larger than live samples, uses several threads.
  OwnChoices(const RouterRule& rule, const Matrix& scores, int64_t tokens,
             const std::vector<double>& bias);

  // Valid as long as this object.
  Choice Row(int64_t t) const;

 private:
  void Store(size_t row, const RouterChoice& choice);

  size_t k_;
  std::vector<int16_t> expert_;
  std::vector<uint8_t> flags_;
};

}  // namespace plumbline::analysis
