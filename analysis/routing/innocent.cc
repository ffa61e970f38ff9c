#include "analysis/routing/innocent.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/reasons.h"

namespace plumbline::analysis {

v1::Verdict DecideZero(const SiteStep& step, const RoutingAnalysis& a) {
  if (a.scores_of_sequences) return ScoresNotOwn();
  if (const std::string complaint = BiasComplaint(step, a.c); !complaint.empty())
    return Inconclusive(complaint);
  return Pass("every token was assigned to the experts that it scores above zero, and no others");
}

v1::Verdict PromptOnly() {
  return Pass(
      "every row belongs to a prompt, as recorded (region): what depends on later tokens of the "
      "prompt is known before the first token is generated");
}

v1::Verdict DecideDropless(const SiteStep& step, const RoutingAnalysis& a) {
  const RoutingCase& c = a.c;
  const v1::RoutingConfig& config = c.routing->config();
  if (a.normalised_over_tokens) return NormalisedOverTokens();
  if (a.scores_of_sequences) return ScoresNotOwn();
  if (a.balance.as_a_bias()) return PricesOrBias();
  if (c.unexplained > 0) return Unexplained(c);
  if (c.unknown_refusals > 0) return UnknownRefusals(c);
  if (c.explained == 0)
    return Inconclusive(
        "no-rows: for no row the choice by its own scores can be compared with the recorded one");
  if (c.non_finite > 0) return Poisoned(c);
  if (const std::string complaint = BiasComplaint(step, c); !complaint.empty())
    return Inconclusive(complaint);
  if (a.nothing_kept.any()) return NothingKeptVerdict(a.nothing_kept);
  if (CapacityCannotRefuse(c)) {
    return Pass(absl::StrCat("every token was assigned by its own scores, and a capacity of ",
                             config.capacity(), " cannot refuse a row of the pool"));
  }
  if (SetsCapacity(config) && !c.drops_recorded) {
    return Inconclusive(
        "no-keep-mask: a capacity is set, but neither keep_mask nor routing_map was recorded");
  }
  if (!a.saturation.contradiction.empty()) return Inconclusive(a.saturation.contradiction);
  if (SetsCapacity(config)) {
    return Inconclusive(absl::StrCat("no-expert-full: no choice was refused at capacity ",
                                     config.capacity(), ", so the drop order is not visible"));
  }
  return Pass("every token was assigned by its own scores");
}

v1::Verdict TwoPolicies(const RoutingAnalysis& a) {
  return Inconclusive(absl::StrFormat(
      "two-policies: first come first served (%s) and %s both give these refusals (%d of them)",
      a.first_come.best.how, a.leak()->Describe(), a.c.dropped));
}

v1::Verdict DecideClean(const SiteStep& step, const RoutingAnalysis& a, double proof_bits) {
  const RoutingCase& c = a.c;
  if (a.scores_of_sequences) return ScoresNotOwn();
  if (c.unexplained > 0) return Unexplained(c);
  if (c.unknown_refusals > 0) return UnknownRefusals(c);
  if (c.non_finite > 0) return Poisoned(c);
  if (const std::string complaint = BiasComplaint(step, c); !complaint.empty())
    return Inconclusive(complaint);
  if (a.rank_major_possible) {
    return Inconclusive(absl::StrFormat(
        "two-policies: first come first served gives these refusals (%d of them), and too few "
        "choice ranks are known to exclude a queue of all first choices before all second ones",
        c.dropped));
  }
  const CleanReplay& replay = a.first_come.best;
  if (!(replay.bits >= proof_bits)) {
    return Inconclusive(absl::StrFormat(
        "few-refusals: first come first served fits, with %.1f bits; the rule needs %.0f",
        replay.bits, proof_bits));
  }
  return Pass(absl::StrFormat("first come first served replays every assignment (%s, %.1f bits)",
                              replay.how, replay.bits));
}

v1::Verdict NoInversion(const SiteStep& step, const RoutingAnalysis& a) {
  const RoutingCase& c = a.c;
  if (c.unexplained > 0) return Unexplained(c);
  if (c.unknown_refusals > 0) return UnknownRefusals(c);
  if (c.non_finite > 0) return Poisoned(c);
  if (const std::string complaint = BiasComplaint(step, c); !complaint.empty())
    return Inconclusive(complaint);
  return Inconclusive(
      "order-unexplained: no inversion, but no queue in time order gives these refusals either");
}

}  // namespace plumbline::analysis
