// Converts a safetensors dump of kind "routing" to routing evidence. Checks its tensors and
// metadata (the contract's Dumps table) against each other. Accepts well-formed content that cannot
// be judged (indices out of range, k > E, no tokens): the rules then return inconclusive.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

// Reads the whole tensors (the 8 MiB limit of live samples does not apply) and measures them. If
// the content cannot be measured, there is no summary.
extern const DumpKind kRoutingDump;

}  // namespace plumbline::audit
