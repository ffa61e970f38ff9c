// Could the data's structure make a stored rule leave exactly what a leaking policy leaves? A bar
// an expert, a number of places an expert and choice rank, a list of ids: over one pool each policy
// that leaks equals some stored rule of that form, and only that the rule's number would be luck
// speaks against it. Where every sequence holds the same tokens (permutations of one list), it is
// no luck.
#pragma once

#include <string>

#include "analysis/routing/analysis.h"

namespace plumbline::rules {

// A sentence that says why, and what to record; empty: the recording excludes it.
// - Pools of one sequence each: two at least, or nothing shows that the rule's number would have
// had
//   to move; scores that are not one another's copies, shifted or scaled; other numbers kept of
//   some expert and choice rank than in another pool, where a queue is replayed.
// - Pools of several sequences: sequences that differ in what they ask of some full expert.
// - No one position from which all is kept and before which all is refused, or the other way round.
// Linear in the choices. Pure, thread-safe.
std::string StructureDoubt(const RoutingAnalysis& a);

}  // namespace plumbline::rules
