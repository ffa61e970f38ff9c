// What a batch must be before an engine may look at it.
#pragma once

#include "absl/status/status.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules {

// InvalidArgument with what was expected and found; its series are checked by SeriesSets::Check.
absl::Status CheckBatch(const v1::Batch& batch);

}  // namespace plumbline::rules
