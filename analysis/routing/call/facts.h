// The declarations on a router, and the conditions of a proof. docs/decisions/0004.
#pragma once

#include <string>

#include "analysis/routing/call/case.h"

namespace plumbline::analysis {

// Returns true if a number of places was recorded, from any source.
bool SetsCapacity(const v1::RoutingConfig& config);
// Returns true if that number comes from the configuration. An inferred number is only the number
// that experts hold.
bool DeclaresCapacity(const v1::RoutingConfig& config);
// Returns true if the configuration states that the router has no capacity.
bool ExcludesCapacity(const v1::RoutingConfig& config);

// Returns true if a token's own draw was declared (jitter, a sampled second expert) and the
// recorded scores do not contain it: they leave some choice unexplained. A draw among the
// candidates of a full expert ("token-selection") does not count.
bool UnrecordedDraws(const RoutingCase& c);
// Returns true if a token's own draws were declared, whether or not the scores contain them.
bool OwnDraws(const v1::RoutingConfig& config);

// Returns true if the configuration names a policy that admits by a score, a rank, a draw or ties,
// or by a draw among the candidates. Such a policy is not a queue that drops some of its input by
// its load.
bool NamesNoQueue(const v1::RoutingConfig& config);

// Returns true if the configuration names a queue: first come, first served.
bool NamesQueue(const v1::RoutingConfig& config);

// Returns true if the capacity cannot refuse: no pool has more rows. If pools are not known,
// returns false.
bool CapacityCannotRefuse(const RoutingCase& c);

// Returns true if in some sequence every row has bit-identical scores: they belong to the sequence
// (its mean, its first token), not to each token. Without sequence ids: if almost all rows are
// alike.
bool ScoresOfSequences(const RoutingCase& c);

}  // namespace plumbline::analysis
