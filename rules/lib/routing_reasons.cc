#include "rules/lib/routing_reasons.h"

#include "absl/strings/str_cat.h"
#include "rules/lib/verdicts.h"

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

}  // namespace plumbline::rules
