// Causal twins: routers that look at no later token and would have left the same recording, choice
// by choice. No verdict can distinguish a leaking router from its twin, so no verdict may be a
// proof.
#pragma once

#include <string>

#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::rules::testing {

// Returns the name of a causal twin of a router that refuses choices. If none is known, returns an
// empty string:
//
// - first come first served over one queue in time order; over pieces of it, if fewer such cuts are
//   possible than kept sets (otherwise one fits by chance); with a capacity for each choice rank;
//   over the first choices only;
// - a stored table of positions and experts, if kept sets that fit one are rare (8 bits), and the
//   admitted number equals the capacity without a large coincidence (less than 7 bits);
// - own refusals, then first come first served, if that is not 7 bits less likely than a draw among
//   all candidates (decision 0053).
//
// Computed from the router's behaviour, without code of the rules.
inline constexpr char kThinned[] = "refusals of the tokens' own, then first come";
std::string CausalTwin(const SyntheticRouting& routing);

}  // namespace plumbline::rules::testing
