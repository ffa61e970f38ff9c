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

// Returns the largest share of the choices that score differences of rounding's size move, if the
// scores are not recorded and are assumed to be almost normal over the experts. It is a tenth, or
// the share for normal scores whose difference between the sides has a deviation of an eighth of
// their spread. (bf16's relative half step is 1/512 and e4m3's 1/16, per factor. Sums of many
// average such errors out; residual streams add up those of their layers.) Let t be the score that
// k of E exceed, and h = phi(t) / (k/E) the hazard there. The gap between the last chosen expert
// and the first one left out has density k h at 0, and two experts' differences have a deviation of
// sqrt(2) s. So a share h s / sqrt(pi) of the choices moves (less if s exceeds the gaps). Pure,
// thread-safe.
double MostByRounding(int32_t experts, int32_t top_k);

// Add one step's comparison, and one pair of tokens, to a report.
void DescribeRouting(const RoutingComparison& comparison, google::protobuf::Struct& details);
void DescribePair(const RoutingComparison::Pair& pair, google::protobuf::Struct& witness);

// Returns "3, 5, -1".
std::string ExpertList(const std::vector<int16_t>& experts);

}  // namespace plumbline::analysis
