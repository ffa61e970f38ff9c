// What the recorder declared of a router, and what a proof may rest on. docs/decisions/0004.
#pragma once

#include <string>

#include "analysis/routing/call/case.h"

namespace plumbline::rules {

// A number of places was recorded, whoever found it.
bool SetsCapacity(const v1::RoutingConfig& config);
// ... and it is the configuration's. An inferred number is no more than what experts exhibit.
bool DeclaresCapacity(const v1::RoutingConfig& config);
// The router has no capacity, by its configuration.
bool ExcludesCapacity(const v1::RoutingConfig& config);

// A draw of the token's own was declared (jitter, a sampled second expert), and the recorded scores
// do not hold it: they leave some choice unexplained. A draw among those that compete for a full
// expert ("token-selection") is no such draw.
bool UnrecordedDraws(const RoutingCase& c);
// Draws of the token's own were declared, whether or not the scores hold them.
bool OwnDraws(const v1::RoutingConfig& config);

// The configuration names a policy that admits by a score, a rank, a draw or ties, or a draw among
// those that compete: no queue that thins what comes to it by what it knows of its load.
bool NamesNoQueue(const v1::RoutingConfig& config);

// The configuration names a queue: first come, first served.
bool NamesQueue(const v1::RoutingConfig& config);

// The capacity can refuse nobody: no pool has more rows. False where pools are not known.
bool CapacityCannotRefuse(const RoutingCase& c);

// In some sequence every row holds the same scores, bit for bit: they are the sequence's (its mean,
// its first token), not those of each token. Without sequence ids: hardly any row is unlike the
// others.
bool ScoresOfSequences(const RoutingCase& c);

}  // namespace plumbline::rules
