// Causal twins: routers that look at no later token and would have left the same recording, choice
// by choice. No verdict can tell a leaking router from its twin, so none may accuse it for sure.
#pragma once

#include <string>

#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::rules::testing {

// Names a causal twin of a router that refuses choices, or is empty where none is known:
//
// - first come first served over one queue in time order; over pieces of it, where fewer such cuts
//   are possible than kept sets (else one fits by accident); with a capacity for each choice rank;
//   over the first choices alone;
// - a stored table of positions and experts, where kept sets that fit one are rare (8 bits) and
// what
//   it let through came to the capacity by no great accident (less than 7 bits);
// - refusals of the tokens' own, then first come first served, where that is not 7 bits less likely
//   than a draw among all who asked (decision 0053).
//
// Computed from what the router did, by no code of the rules.
inline constexpr char kThinned[] = "refusals of the tokens' own, then first come";
std::string CausalTwin(const SyntheticRouting& routing);

}  // namespace plumbline::rules::testing
