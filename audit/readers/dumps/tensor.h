// A safetensors dump of kind "tensor": one tensor, `values`, as tensor-state evidence.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

// The statistics are over the whole tensor. Values are kept as the sample: all of them up to 1 MiB,
// else whole rows up to 8 MiB (probabilities, positions) or the elements that live evidence of this
// site and step would hold (kernels/core/sample_index.h). `replicas` names a group of ranks that
// hold copies.
extern const DumpKind kTensorDump;

}  // namespace plumbline::audit
