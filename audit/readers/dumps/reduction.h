// Dumps of kind "reduction": the inputs of all ranks of one collective and its output, at sampled
// elements.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

// `inputs` [N,m] for all ranks, or [m] for the rank in the metadata (ranks are then joined by
// `group` and `sequence`); `output` [m] or [N,m]; optional `offsets` [m]. Metadata in addition to
// the contract: `sequence`, `group_size`, `group_rank` (else `rank`), `chunk` (elements in a chunk
// of one channel), `transport`, `root`.
extern const DumpKind kReductionDump;

}  // namespace plumbline::audit
