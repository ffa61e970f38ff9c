#include "analysis/routing/reasons.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/policies.h"

namespace plumbline::rules {

v1::Verdict NoOrder(const RoutingCase& c) {
  return Inconclusive(c.sequence.empty() ? "no-sequence-ids: whose future it is cannot be told"
                                         : "no-positions: what is later cannot be told");
}
v1::Verdict RandomChoice(const RoutingCase& c) {
  return Inconclusive(absl::StrCat("randomness-declared: the choice is random (",
                                   c.routing->config().randomness(),
                                   ") and its draws were not recorded"));
}
v1::Verdict Unexplained(const RoutingCase& c) {
  return Inconclusive(absl::StrCat(
      "choices-unexplained: ", c.unexplained, " of ", c.explained + c.unexplained,
      " rows did not choose what their recorded scores say; noise, a bias or a mask was "
      "not recorded"));
}
v1::Verdict UnknownRefusals(const RoutingCase& c) {
  return Inconclusive(
      absl::StrCat("refusals-unknown: ", c.unknown_refusals,
                   " tied or non-finite rows were refused something; by whom cannot be told"));
}
v1::Verdict Poisoned(const RoutingCase& c) {
  return Inconclusive(
      absl::StrCat("non-finite: ", c.non_finite, " of ", c.judged_rows,
                   " rows hold a NaN or infinite score; the others give no ground for alarm"));
}
v1::Verdict NormalisedOverTokens() {
  return Inconclusive(
      "scores-normalised: the recorded scores sum to the same for every expert, so they were "
      "normalised over the tokens; record the logits that each token has by itself");
}

std::string ColumnsOtherwise(const RoutingCase& c, const ColumnChoice& column) {
  if (ExcludesCapacity(c.routing->config())) {
    return "capacity-none: every expert holds the same number of tokens, its best by score, and "
           "the "
           "router is recorded to have no capacity; a threshold of the tokens' own on even data "
           "does the same";
  }
  if (column.exceeds_declared) {
    return absl::StrCat("capacity-differs: every expert holds ", column.capacity,
                        " tokens, the declared capacity is ", c.routing->config().capacity());
  }
  if (column.positional || column.learned_table) {
    return "table: the same positions are taken in every sequence, or scores have few values or "
           "gaps that no competition leaves; a table does that without looking at any token";
  }
  if (column.by_position) {
    return "by-position: at every position each expert holds the same number of tokens; experts "
           "that choose among the sequences, position by position, do that without looking ahead";
  }
  if (column.one_threshold) {
    return "own-threshold: one threshold per expert, common to all pools, explains every "
           "assignment";
  }
  return "";
}
v1::Verdict ScoresNotOwn() {
  return Inconclusive(
      "scores-not-own: all rows of a sequence have the same scores, bit for bit; they are the "
      "sequence's, and what of it they rest on does not show");
}
bool OneCellAlone(const Saturation& s) {
  return std::count_if(s.cells.begin(), s.cells.end(),
                       [](const Cell& cell) { return cell.candidates() > 0; }) == 1;
}
v1::Verdict OneCell(double luck_bits) {
  return Inconclusive(absl::StrFormat(
      "one-cell: one expert of one pool refused, by score; a stored threshold leaves the number "
      "that "
      "is declared as capacity with a chance of 2^-%.1f, and no other cell contradicts it. Record "
      "several sequences, each a pool",
      luck_bits));
}
v1::Verdict EvenByStructure() {
  return Inconclusive(
      "even-by-structure: experts hold equal numbers, but tokens come in kinds that occur equally "
      "often, which makes counts equal by itself, and no capacity of the configuration was "
      "recorded");
}
v1::Verdict PricesOrBias() {
  return Inconclusive(
      "prices-or-bias: one price an expert explains every choice; a bias that was stored and not "
      "recorded does the same. Record expert_bias (zeros where there is none) or policy");
}

}  // namespace plumbline::rules
