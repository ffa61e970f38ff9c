// Compares two checkpoints by the equality of plumb diff, and gives the bits of what differs.
#pragma once

#include "absl/status/status.h"
#include "audit/certify/tally.h"
#include "audit/checkpoints/side.h"

namespace plumbline::audit {

// Compares every tensor and every other value (checkpoints/equality.h). Elements of tensors of one
// name are counted as kind "weights"; other values as "values". Types that cannot be read are open
// gaps. Returns InvalidArgument if the checkpoints have no tensor in common.
absl::Status CompareWeights(const CheckpointSide& a, const CheckpointSide& b, Tally* tally);

}  // namespace plumbline::audit
