// Verdicts on a layer whose choices differ between training and inference if no margin decides:
// there are no scores, or they are far apart, or nearly tied. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/routing/train_infer/join.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Sums over all steps of a layer.
struct FlipTotals {
  uint64_t compared = 0;  // tokens
  uint64_t flips = 0;     // those with different sets of experts
  double share = 0;       // share of all choices that only one side made
};

// Uses only the choices, ignoring margins. Passes up to `flip_share`.
v1::Verdict VerdictByChoices(const RoutingComparison& last, const FlipTotals& totals,
                             double flip_share);

// Returns true if more choices differ than rounding can move.
bool FlipsMuch(const RoutingComparison& last, const FlipTotals& totals);
// Call if FlipsMuch: the scores are far apart, or nearly tied.
v1::Verdict VerdictByScores(const RoutingComparison& last, const FlipTotals& totals);

// The texts of a finding that the sides select by different rules. Call if last.rules.proved().
struct RuleFinding {
  const char* cause;
  const char* fix;
  double share;  // among the tokens that the rules decide, the share that they decide differently
  std::string text;
};
RuleFinding DescribeRules(const RoutingComparison& last);

}  // namespace plumbline::analysis
