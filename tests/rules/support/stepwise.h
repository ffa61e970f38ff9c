// Evidence of a whole run, sent as live ranks would send it: a batch for each step of each source,
// with its progress, so that steps close as they come and some are open in between.
#pragma once

#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

// In the order (attempt, step, source). What the batches say of progress is replaced; losses and
// declarations come with the first batch of their source.
std::vector<v1::Batch> Stepwise(const std::vector<v1::Batch>& batches);

}  // namespace plumbline::rules::testing
