// Returns checkpoints as a stream of evidence, tensor by tensor.
#pragma once

#include <memory>
#include <vector>

#include "audit/readers/checkpoint/plan.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// `plans` is not empty; its reports must outlive the source. If `block_fits`, weights are read a
// second time to measure their error in block-scaled formats.
std::unique_ptr<Source> OpenCheckpoints(std::vector<PlannedFile> plans, bool block_fits = false);

}  // namespace plumbline::audit
