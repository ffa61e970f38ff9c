// Dumps of kind `logits`: the trainer's and the rollout's logits over one vocabulary.
#pragma once

#include "audit/readers/dump_kind.h"

namespace plumbline::audit {

extern const DumpKind kLogitsDump;

}  // namespace plumbline::audit
