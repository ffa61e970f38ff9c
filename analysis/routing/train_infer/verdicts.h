// What is said of a layer whose choices differ between training and inference where no margin
// tells: there are no scores, or they are far apart, or nearly tied. Pure, thread-safe.
#pragma once

#include <cstdint>

#include "analysis/routing/train_infer/join.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Of all steps of a layer.
struct FlipTotals {
  uint64_t compared = 0;  // tokens
  uint64_t flips = 0;     // with other sets of experts
  double share = 0;       // of all choices, those that one side alone made
};

// By the choices alone, whatever the margins. A pass up to `flip_share`.
v1::Verdict VerdictByChoices(const RoutingComparison& last, const FlipTotals& totals,
                             double flip_share);

// More choices differ than rounding moves.
bool FlipsMuch(const RoutingComparison& last, const FlipTotals& totals);
// Then: the scores are far apart, or nearly tied.
v1::Verdict VerdictByScores(const RoutingComparison& last, const FlipTotals& totals);

}  // namespace plumbline::rules
