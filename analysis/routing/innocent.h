// Verdicts of moe-future-leak on calls that show no inversion, and on those that a clean policy
// explains: what passes, and why the rest does not.
#pragma once

#include "analysis/routing/analysis.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Every token took the experts that it scores above zero.
v1::Verdict DecideZero(const SiteStep& step, const RoutingAnalysis& a);
// No choice was refused.
v1::Verdict DecideDropless(const SiteStep& step, const RoutingAnalysis& a);
// A clean and a leaking policy both give every refusal.
v1::Verdict TwoPolicies(const RoutingAnalysis& a);
// A queue gives every refusal, and no leaking policy does; a pass from `proof_bits` on.
v1::Verdict DecideClean(const SiteStep& step, const RoutingAnalysis& a, double proof_bits);
// Choices were refused, no earlier token lost to a later one, and no queue gives the refusals.
v1::Verdict NoInversion(const SiteStep& step, const RoutingAnalysis& a);

}  // namespace plumbline::rules
