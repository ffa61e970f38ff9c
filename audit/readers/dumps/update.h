// A safetensors dump of kind "update": one in-place update (before, after, intended, and what the
// optimizer made it of) as update evidence.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

// The update check is over the whole tensor. Sampled elements: all of them up to 1 MiB a tensor,
// else those that live evidence of this site and step would hold. `eps_dtype` names the dtype in
// which eps is added, where it is not the moments'.
extern const DumpKind kUpdateDump;

}  // namespace plumbline::audit
