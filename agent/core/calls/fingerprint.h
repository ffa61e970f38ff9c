// Implements plumbline_fingerprint with analysis/sums/fingerprint.h.
#pragma once

#include "absl/status/status.h"
#include "plumbline/plumbline.h"

namespace plumbline::agent {

// Takes a fingerprint. Returns InvalidArgument for a wrong description, and FailedPrecondition if
// the function failed. Calls sum.sum in this thread. Thread-safe.
absl::Status TakeFingerprint(const plumbline_sum_t& sum, plumbline_fingerprint_result_t* result);

}  // namespace plumbline::agent
