// Tests whether the data's structure could make a stored rule leave exactly what a leaking policy
// leaves. Such a rule is a bar per expert, a number of places per expert and choice rank, or a list
// of ids. Over one pool each leaking policy equals some stored rule of that form, and the only
// counter-evidence is that the rule's number would be a coincidence. If every sequence has the same
// tokens (permutations of one list), equal numbers are no coincidence.
#pragma once

#include <string>

#include "analysis/routing/analysis.h"

namespace plumbline::analysis {

// Returns a sentence that states why, and what to record. If the recording excludes it, returns an
// empty string. The conditions:
// - Pools of one sequence each: at least two, or nothing shows that the rule's number would have to
//   change; scores that are not copies of each other, shifted or scaled; if a queue is replayed,
//   other numbers kept of some expert and choice rank than in another pool.
// - Pools of several sequences: sequences that differ in their choices of some full expert.
// - No position from which on all is kept and before which all is refused, or vice versa.
// Linear in the choices. Pure, thread-safe.
std::string StructureDoubt(const RoutingAnalysis& a);

}  // namespace plumbline::analysis
