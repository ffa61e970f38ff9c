// Converts a safetensors dump of kind "tensor", one tensor `values`, to tensor-state evidence.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

// The statistics cover the whole tensor. The sample has all values up to 1 MiB. Above that, it has
// whole rows up to 8 MiB (probabilities, positions) or the elements that live evidence of this site
// and step would have (kernels/core/sample_index.h). `replicas` names a group of ranks that hold
// copies.
extern const DumpKind kTensorDump;

}  // namespace plumbline::audit
