// Learns invariants from profiles of healthy runs.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "audit/learn/invariants.h"
#include "audit/learn/run_profiles.h"

namespace plumbline::audit {

// One run is held back for the confirmation, and one for the measurement of false alarms.
inline constexpr size_t kFewestRuns = 4;

// Learns bounds that held in all runs, and keeps those that each run, held back, confirms. Then it
// repeats the whole procedure without one run at a time, and counts the runs that violate what the
// others taught. Returns InvalidArgument if there are fewer than kFewestRuns runs, or no invariant
// is left.
absl::StatusOr<Invariants> Learn(const std::vector<const RunProfile*>& runs);

}  // namespace plumbline::audit
