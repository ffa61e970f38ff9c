// Converts a safetensors dump of kind "update" to update evidence: one in-place update (before,
// after, intended, and the optimizer's inputs).
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

// The update check covers the whole tensor. The sample has all elements up to 1 MiB per tensor;
// above that, the elements that live evidence of this site and step would have. `eps_dtype` names
// the dtype in which eps is added, if it differs from the dtype of the moments.
extern const DumpKind kUpdateDump;

}  // namespace plumbline::audit
