// Describes the plain values of a checkpoint that were counted but not kept.
#pragma once

#include <string>

#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// Returns "counted and not kept: 475712 plain values of losses, vocabulary" for the report; "" if
// all were kept. Lists at most eight places, by their keys. Work is linear in the tree.
std::string OmittedRuns(const PickleTree& tree);

}  // namespace plumbline::audit
