// Converts the evidence of a whole run to what live ranks send: a batch for each step of each
// source, with its progress, so that steps close as they arrive and some are open in between.
#pragma once

#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

// Returns batches in the order (attempt, step, source). Replaces the progress in the batches.
// Losses and declarations come with the first batch of their source.
std::vector<v1::Batch> Stepwise(const std::vector<v1::Batch>& batches);

}  // namespace plumbline::rules::testing
