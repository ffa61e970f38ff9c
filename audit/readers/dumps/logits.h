// Dumps of kind `logits`: the trainer's and the rollout's logits over one vocabulary.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

extern const DumpKind kLogitsDump;

}  // namespace plumbline::audit
