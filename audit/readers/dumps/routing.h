// A safetensors dump of kind "routing" as routing evidence: tensors and metadata of the contract's
// Dumps table, checked against each other. What is well formed but cannot be judged (indices out of
// range, k > E, no tokens) is left to the rules, which answer inconclusive.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

// The tensors are read whole (the 8 MiB of live samples do not bind here) and measured. The summary
// is absent when the content cannot be measured.
extern const DumpKind kRoutingDump;

}  // namespace plumbline::audit
