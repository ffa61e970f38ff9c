// What was counted of a checkpoint's plain values and not kept.
#pragma once

#include <string>

#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// "counted and not kept: 475712 plain values of losses, vocabulary", for the report; empty: all
// were kept. Places by their keys, at most eight of them. The work is linear in the tree.
std::string RunsTold(const PickleTree& tree);

}  // namespace plumbline::audit
