// Verdicts of moe-future-leak on calls without an inversion, and on calls that a clean policy
// explains. They state why a call passes, or why it is inconclusive.
#pragma once

#include "analysis/routing/analysis.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// For calls whose rows are recorded as prompts, which are never generated.
v1::Verdict PromptOnly();
// For calls in which every token took the experts that it scores above zero.
v1::Verdict DecideZero(const SiteStep& step, const RoutingAnalysis& a);
// For calls in which no choice was refused.
v1::Verdict DecideDropless(const SiteStep& step, const RoutingAnalysis& a);
// For calls in which a clean and a leaking policy both give every refusal.
v1::Verdict TwoPolicies(const RoutingAnalysis& a);
// For calls in which a queue gives every refusal, and no leaking policy does; passes from
// `proof_bits` on.
v1::Verdict DecideClean(const SiteStep& step, const RoutingAnalysis& a, double proof_bits);
// For calls in which choices were refused, no earlier token lost to a later one, and no queue gives
// the refusals.
v1::Verdict NoInversion(const SiteStep& step, const RoutingAnalysis& a);

}  // namespace plumbline::analysis
