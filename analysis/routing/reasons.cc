#include "analysis/routing/reasons.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/checked.h"
#include "analysis/routing/policies/policies.h"

namespace plumbline::analysis {

v1::Verdict NoOrder(const RoutingCase& c) {
  return Inconclusive(c.sequence.empty()
                          ? "no-sequence-ids: the rule cannot assign tokens to sequences"
                          : "no-positions: the rule cannot determine the order of tokens");
}
v1::Verdict RandomChoice(const RoutingCase& c) {
  return Inconclusive(absl::StrCat("randomness-declared: the choice is random (",
                                   c.routing->config().randomness(),
                                   ") and its draws were not recorded"));
}
v1::Verdict Unexplained(const RoutingCase& c) {
  return Inconclusive(absl::StrCat(
      "choices-unexplained: ", c.unexplained, " of ", c.explained + c.unexplained,
      " rows did not choose by their recorded scores; noise, a bias or a mask was not recorded"));
}
v1::Verdict UnknownRefusals(const RoutingCase& c) {
  return Inconclusive(
      absl::StrCat("refusals-unknown: ", c.unknown_refusals,
                   " tied or non-finite rows were refused; the refusing expert is not known"));
}
v1::Verdict Poisoned(const RoutingCase& c) {
  return Inconclusive(absl::StrCat("non-finite: ", c.non_finite, " of ", c.judged_rows,
                                   " rows have a NaN or infinite score; the others show no fault"));
}
v1::Verdict NormalisedOverTokens() {
  return Inconclusive(
      "scores-normalised: the recorded scores have the same sum for every expert, so they were "
      "normalised over the tokens; record the logits of each token");
}

std::string ColumnsOtherwise(const RoutingCase& c, const ColumnChoice& column) {
  if (ExcludesCapacity(c.routing->config())) {
    return "capacity-none: every expert has the same number of tokens, its best by score, but the "
           "router is recorded without capacity; a threshold per token on balanced data gives the "
           "same";
  }
  if (column.exceeds_declared) {
    return absl::StrCat("capacity-differs: every expert has ", column.capacity,
                        " tokens, but the declared capacity is ", c.routing->config().capacity());
  }
  if (column.positional || column.learned_table) {
    return "table: the same positions are chosen in every sequence, or scores have few values or "
           "unusual gaps; a fixed table gives this without any token";
  }
  if (column.by_position) {
    return "by-position: at every position each expert has the same number of tokens; experts that "
           "choose among the sequences, position by position, give this without later tokens";
  }
  if (column.one_threshold) {
    return "own-threshold: one threshold per expert, common to all pools, explains every "
           "assignment";
  }
  return "";
}
v1::Verdict ScoresNotOwn() {
  return Inconclusive(
      "scores-not-own: all rows of a sequence have bit-identical scores; they belong to the "
      "sequence, and it is not visible which tokens they depend on");
}
bool OneCellAlone(const Saturation& s) {
  return std::count_if(s.cells.begin(), s.cells.end(),
                       [](const Cell& cell) { return cell.candidates() > 0; }) == 1;
}
v1::Verdict OneCell(double luck_bits) {
  return Inconclusive(
      absl::StrFormat("one-cell: one expert of one pool refused by score; a stored threshold gives "
                      "the declared capacity with probability 2^-%.1f, and no other expert or pool "
                      "contradicts it. Record several sequences, each as a pool",
                      luck_bits));
}
v1::Verdict EvenByStructure() {
  return Inconclusive(
      "even-by-structure: experts have equal counts, but kinds of tokens occur equally often, "
      "which alone makes counts equal, and no configured capacity was recorded");
}
v1::Verdict CleanPattern(const RoutingAnalysis& a) {
  return Inconclusive(
      absl::StrFormat("clean-pattern: %d inversions, but %s gives the same refusals",
                      a.inversions.inversions, a.patterns.name()));
}
v1::Verdict PairsUnexplained(const RoutingAnalysis& a) {
  return Inconclusive(
      absl::StrFormat("inversions-unexplained: %d inversions (%.1f bits that capacity caused "
                      "them; %s), and no known policy gives these refusals. Record policy. If "
                      "tokens are refused by a draw or a rate, record randomness",
                      a.inversions.inversions, std::min(a.certificate.bits, a.capacity_bits),
                      AgainstOwnRefusals(a)));
}
v1::Verdict PricesOrBias() {
  return Inconclusive(
      "prices-or-bias: one price per expert explains every choice; a stored but unrecorded bias "
      "gives the same. Record expert_bias (zeros if there is none) or policy");
}

}  // namespace plumbline::analysis
