// Checkpoints as a stream of evidence, tensor by tensor.
#pragma once

#include <memory>
#include <vector>

#include "audit/readers/checkpoint/plan.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// `plans` is not empty; its reports outlive the source. `block_fits`: weights are read once more,
// for what they would lose in formats with a scale a block.
std::unique_ptr<Source> OpenCheckpoints(std::vector<PlannedFile> plans, bool block_fits = false);

}  // namespace plumbline::audit
